package gateway

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/weir-go/weir/internal/strictyaml"
	"github.com/weir-go/weir/internal/words"
)

// maxConfig is the size of the largest configuration that is read, in bytes.
const maxConfig = 1 << 20

var kind = strictyaml.Kind{Name: "a configuration", Least: "upstreams and routes"}

// source is the file of a Config: its name, and where in it the values are.
type source struct {
	file string
	*strictyaml.Document
}

// Load reads and checks the configuration in a file. Everything that is wrong comes back at once, as a [*ConfigError].
// Relative file names in it are taken from the file's directory. Nothing in it is expanded: $ is a dollar sign.
func Load(path string) (*Config, error) {
	data, err := readFile(path, maxConfig)
	if err != nil {
		text := strings.TrimPrefix(err.Error(), words.Quoted(path)+" ") // which File says
		return nil, &ConfigError{Problems: []Problem{{File: path, Text: text, Err: err}}}
	}
	return Parse(path, data)
}

// Parse is Load of the contents of a file of that name.
func Parse(name string, data []byte) (*Config, error) {
	if len(data) > maxConfig {
		return nil, &ConfigError{Problems: []Problem{{File: name, Line: 1, Column: 1, Text: fmt.Sprintf("over %d bytes", maxConfig)}}}
	}
	c := new(Config)
	c.src = &source{name, strictyaml.Decode(data, c, kind)}
	c.resolve(filepath.Dir(name))
	var ps problems
	for _, f := range c.src.Faults {
		ps = append(ps, Problem{File: name, Line: f.Line, Column: f.Column, Field: f.Field, Text: f.Text, Err: f.Err})
	}
	ps = append(ps, c.check()...)
	if err := ps.err(); err != nil {
		return nil, err
	}
	return c, nil
}

// resolve takes relative file names from a directory.
func (c *Config) resolve(dir string) {
	for _, f := range c.files() {
		if *f.name != "" && !filepath.IsAbs(*f.name) {
			*f.name = filepath.Join(dir, *f.name)
		}
	}
}

// Files are the files that the configuration names, and that a change of the configuration may come from.
func (c *Config) Files() []string {
	var names []string
	for _, f := range c.files() {
		if *f.name != "" {
			names = append(names, *f.name)
		}
	}
	return names
}

// named is a file name in a Config, and its field.
type named struct {
	name  *string
	field string
}

func (c *Config) files() []named {
	files := []named{{&c.Admin.TokenFile, "admin.token_file"}}
	for i := range c.Listen {
		l, field := &c.Listen[i], strictyaml.Item("listen", i)
		files = append(files, named{&l.Cert, field + ".cert"}, named{&l.Key, field + ".key"})
	}
	if k := c.Identity.APIKeys; k != nil {
		files = append(files, named{&k.File, "identity.api_keys.file"})
	}
	if j := c.Identity.JWT; j != nil {
		files = append(files, named{&j.KeyFile, "identity.jwt.key_file"}, named{&j.JWKSFile, "identity.jwt.jwks_file"})
	}
	return files
}

// readFile is os.ReadFile for ordinary files up to a size: a pipe or a device would never end. The error says
// no more than why, on one line.
func readFile(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s cannot be read: not an ordinary file", words.Quoted(path))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, unreadable(path, err)
	}
	if int64(len(data)) > most {
		return nil, fmt.Errorf("%s cannot be read: over %d bytes", words.Quoted(path), most)
	}
	return data, nil
}

// unreadable is an error of the file system without the name of the system call; errors.Is finds its cause.
func unreadable(path string, err error) error {
	var cause *fs.PathError
	if errors.As(err, &cause) {
		err = cause.Err
	}
	return fmt.Errorf("%s cannot be read: %w", words.Quoted(path), err)
}
