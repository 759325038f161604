package traffic

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/weir-go/weir"
)

// trace keeps the charges of one limit for going through them again and again: a dozen bytes each, in memory at first and then in a
// temporary file.
type trace struct {
	buf  []byte
	file *os.File
	w    *bufio.Writer
	last weir.Instant
	n    int64

	first  weir.Charge // its cost and priority
	uneven bool        // charges differ in these
}

const traceInMemory = 16 << 20

// traced is one charge of a trace. The key is its hash.
type traced struct {
	at       weir.Instant
	key      uint64
	cost     int64
	priority weir.Priority
}

func (t *trace) add(at weir.Instant, key uint64, c *weir.Charge) error {
	var few [2*binary.MaxVarintLen64 + 9]byte
	b := binary.AppendUvarint(few[:0], uint64(at-t.last))
	b = binary.LittleEndian.AppendUint64(b, key)
	b = binary.AppendUvarint(b, uint64(c.Cost))
	b = append(b, byte(c.Priority+1))
	t.last = at
	if t.n++; t.n == 1 {
		t.first = weir.Charge{Cost: c.Cost, Priority: c.Priority}
	}
	t.uneven = t.uneven || c.Cost != t.first.Cost || c.Priority != t.first.Priority
	if t.w == nil {
		if t.buf = append(t.buf, b...); len(t.buf) < traceInMemory {
			return nil
		}
		file, err := os.CreateTemp("", "weir-simulate-*")
		if err != nil {
			return fmt.Errorf("traffic: no room for going through the requests again: %w", err)
		}
		os.Remove(file.Name()) // where the system allows it, nothing is left behind however this ends
		t.file, t.w = file, bufio.NewWriterSize(file, 1<<18)
		b, t.buf = t.buf, nil
	}
	_, err := t.w.Write(b)
	return err
}

// each calls f for all charges, from the first one on, until it returns false.
func (t *trace) each(f func(*traced) (bool, error)) error {
	var r *bufio.Reader
	if t.w == nil {
		r = bufio.NewReader(&sliceReader{t.buf})
	} else {
		if err := t.w.Flush(); err != nil {
			return err
		}
		r = bufio.NewReaderSize(io.NewSectionReader(t.file, 0, 1<<62), 1<<18)
	}
	var c traced
	var key [9]byte
	for {
		delta, err := binary.ReadUvarint(r)
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if _, err := io.ReadFull(r, key[:8]); err != nil {
			return err
		}
		cost, err := binary.ReadUvarint(r)
		if err != nil {
			return err
		}
		priority, err := r.ReadByte()
		if err != nil {
			return err
		}
		c.at += weir.Instant(delta)
		c.key, c.cost, c.priority = binary.LittleEndian.Uint64(key[:8]), int64(cost), weir.Priority(priority)-1
		if more, err := f(&c); !more || err != nil {
			return err
		}
	}
}

func (t *trace) close() {
	if t.file != nil {
		t.file.Close()
		os.Remove(t.file.Name())
		t.file = nil
	}
}

type sliceReader struct{ b []byte }

func (s *sliceReader) Read(p []byte) (int, error) {
	if len(s.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.b)
	s.b = s.b[n:]
	return n, nil
}
