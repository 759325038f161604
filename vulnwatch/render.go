package vulnwatch

import (
	"os"
	"path/filepath"
)

// render writes the pages and feeds.
func (e *Edition) render(dir string) error {
	return os.WriteFile(filepath.Join(dir, "index.html"), []byte(e.Title), 0o644)
}
