// Command replay measures weir simulate on a large access log beside wc -l and zcat: lines a second, and memory.
//
//	go run ./cmd/replay -lines 10000000
//
// It writes a log in the combined format, 60,000 clients by a heavy-tailed law, 2,000 requests a second, one line in 100,000 broken, plain and
// compressed, and puts it through three limits: an address, a pair of address and route, and everybody together. Each program runs for itself,
// so that its memory is its own.
package main

import (
	"bufio"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

func main() {
	log.SetFlags(0)
	lines := flag.Int("lines", 10_000_000, "of the log")
	weir := flag.String("weir", "", "the weir `binary`; empty: built from the directory above the benchmarks")
	dir := flag.String("dir", "", "where the log is written; empty: a temporary `directory`")
	flag.Parse()
	if err := run(*lines, *weir, *dir); err != nil {
		log.Fatal(err)
	}
}

var limits = []string{
	"--limit", "ip=600/m burst=100 key=ip",
	"--limit", "pair=300/m key=ip+route algorithm=sliding-window",
	"--limit", "global=2500/s burst=5000",
}

func run(lines int, weir, dir string) error {
	if dir == "" {
		temp, err := os.MkdirTemp("", "replay-*")
		if err != nil {
			return err
		}
		defer os.RemoveAll(temp)
		dir = temp
	}
	if weir == "" {
		weir = filepath.Join(dir, "weir")
		build := exec.Command("go", "build", "-C", "..", "-o", weir, "./cmd/weir")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("build weir: %w", err)
		}
	}
	plain := filepath.Join(dir, "access.log")
	packed := plain + ".gz"
	began := time.Now()
	size, err := write(plain, packed, lines)
	if err != nil {
		return err
	}
	fmt.Printf("%d lines, %.2f GB, written in %v\n\n", lines, float64(size)/1e9, time.Since(began).Round(time.Second))
	fmt.Printf("%-44s %9s %12s %9s %9s\n", "", "seconds", "lines/s", "CPU s", "peak MB")
	simulate := func(more ...string) []string {
		return append(append([]string{weir, "simulate", "-q"}, limits...), more...)
	}
	for _, row := range []struct {
		name string
		args []string
	}{
		{"wc -l", []string{"wc", "-l", plain}},
		{"zcat | wc -l", []string{"sh", "-c", "zcat '" + packed + "' | wc -l"}},
		{"simulate, 3 limits", simulate("--no-compare", plain)},
		{"simulate, 3 limits, from .gz", simulate("--no-compare", packed)},
		{"simulate, 3 limits by 6 algorithms each", simulate(plain)},
		{"simulate, 3 limits, and suggest", simulate("--no-compare", "--suggest", "1%", plain)},
	} {
		if err := measure(row.name, row.args, lines); err != nil {
			return err
		}
	}
	return nil
}

// measure runs a program and prints what it took.
func measure(name string, args []string, lines int) error {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = io.Discard, os.Stderr
	began := time.Now()
	err := cmd.Run()
	took := time.Since(began)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return errors.New("this system does not say how much memory a program took")
	}
	cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	fmt.Printf("%-44s %9.2f %12.0f %9.2f %9.0f\n", name, took.Seconds(), float64(lines)/took.Seconds(), cpu.Seconds(), float64(usage.Maxrss)/1024)
	return nil
}

// write makes the log, and says how long it is.
func write(plain, packed string, lines int) (size int64, err error) {
	a, err := os.Create(plain)
	if err != nil {
		return 0, err
	}
	defer a.Close()
	b, err := os.Create(packed)
	if err != nil {
		return 0, err
	}
	defer b.Close()
	z, _ := gzip.NewWriterLevel(b, gzip.BestSpeed)
	w := bufio.NewWriterSize(io.MultiWriter(a, z), 1<<20)
	random := rand.New(rand.NewPCG(1, 1))
	begin := time.Date(2026, 11, 27, 8, 0, 0, 0, time.UTC)
	var line []byte
	for i := range lines {
		line = line[:0]
		if i%100_000 == 99_999 {
			line = append(line, "2026/11/27 08:00:00 [error] upstream timed out\n"...)
		} else {
			k := min(int(math.Pow(random.Float64(), -2)), 60_000) // Pareto, α = 1/2
			line = fmt.Appendf(line, "198.18.%d.%d - - [", k>>8, k&255)
			line = begin.Add(time.Duration(i/2000)*time.Second).AppendFormat(line, "02/Jan/2006:15:04:05 -0700")
			line = append(line, `] "GET /items/`...)
			line = strconv.AppendInt(line, int64(i%1000), 10)
			line = append(line, `?ref=mail HTTP/1.1" 200 5120 "https://shop.example/items" "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"`+"\n"...)
		}
		size += int64(len(line))
		if _, err := w.Write(line); err != nil {
			return 0, err
		}
	}
	return size, errors.Join(w.Flush(), z.Close(), a.Close(), b.Close())
}
