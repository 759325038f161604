package redisstore_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/redisstore"
)

// processLimits are what the processes hammer: one that is used up, and one that comes back all the time.
var processLimits = map[string]*weir.Limit{
	"stock": {Name: "stock", Rate: weir.Rate{Units: 2000, Period: 400 * 24 * time.Hour}},
	"flow":  {Name: "flow", Algorithm: weir.SlidingLog, Rate: weir.Rate{Units: 50, Period: 200 * time.Millisecond}},
}

const processes = 5

// TestMain is a process of TestManyProcesses if it is started as one.
func TestMain(m *testing.M) {
	if url := os.Getenv("WEIR_TEST_REDIS"); url != "" {
		hammer(url, os.Getenv("WEIR_TEST_LIMIT"), os.Getenv("WEIR_TEST_OFFSET"), os.Getenv("WEIR_TEST_CLOCK") == "own")
		return
	}
	os.Exit(m.Run())
}

// hammer takes for 1.5 s and prints the instant of each admission.
func hammer(url, limit, offset string, ownClock bool) {
	off, err := time.ParseDuration(offset)
	if err != nil {
		panic(err)
	}
	conn, err := redisstore.Open(url)
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	store := &redisstore.Store{Client: conn, Timeout: 20 * time.Second}
	if ownClock {
		store.Now = func() time.Time { return time.Now().Add(off) }
	}
	lim := weir.Limiter{Store: &redisstore.Refusals{Store: store, MaxAge: 2 * time.Millisecond}}
	l := processLimits[limit]
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for start := time.Now(); time.Since(start) < 1500*time.Millisecond; {
		d, err := lim.Take(context.Background(), l.For("everybody"))
		if err != nil {
			panic(err)
		}
		if d.Allowed {
			fmt.Fprintln(out, d.At.UnixMicro())
		}
	}
}

// TestManyProcesses has processes whose clocks are up to five seconds off hammer one key: together they are admitted what the limit
// admits. Their clocks do not matter, since the server's is the clock. A stock that is used up is not admitted twice
// either where each decides by its own clock, as only tests do; a flow would be.
func TestManyProcesses(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, clock := range []string{"server", "own"} {
		for name, l := range processLimits {
			if clock == "own" && name == "flow" {
				continue
			}
			t.Run(name+" by the clock of "+clock, func(t *testing.T) {
				s := startRedis(t)
				var admitted []int64
				var outs []*bufio.Scanner
				var cmds []*exec.Cmd
				for i := range processes {
					cmd := exec.Command(self)
					cmd.Env = append(os.Environ(), "WEIR_TEST_REDIS="+s.URL, "WEIR_TEST_LIMIT="+name,
						fmt.Sprintf("WEIR_TEST_OFFSET=%dms", 5000-i*10_000/(processes-1)), "WEIR_TEST_CLOCK="+clock)
					cmd.Stderr = os.Stderr
					out, err := cmd.StdoutPipe()
					if err != nil {
						t.Fatal(err)
					}
					if err := cmd.Start(); err != nil {
						t.Fatal(err)
					}
					outs, cmds = append(outs, bufio.NewScanner(out)), append(cmds, cmd)
				}
				busy := 0 // processes that got something
				for i, out := range outs {
					n := 0
					for out.Scan() {
						at, err := strconv.ParseInt(out.Text(), 10, 64)
						if err != nil {
							t.Fatal(err)
						}
						admitted = append(admitted, at)
						n++
					}
					if n > 0 {
						busy++
					}
					if err := cmds[i].Wait(); err != nil {
						t.Fatal(err)
					}
				}
				slices.Sort(admitted)
				units := int(l.Rate.Units)
				if name == "stock" {
					if len(admitted) != units {
						t.Errorf("admitted %d, want all %d and no more", len(admitted), units)
					}
					return
				}
				for i := units; i < len(admitted); i++ {
					if span := admitted[i] - admitted[i-units]; span < l.Rate.Period.Microseconds() {
						t.Fatalf("%d admitted within %d µs; the limit is %v", units+1, span, l.Rate)
					}
				}
				// All capacity used: of each full window, whatever the machine was busy with, most.
				span := time.Duration(admitted[len(admitted)-1]-admitted[0]) * time.Microsecond
				could := units * int(1+span/l.Rate.Period)
				t.Logf("%d admitted to %d of %d processes in %v; the limit is %d", len(admitted), busy, processes, span, could)
				if len(admitted) < could/2 || busy < processes {
					t.Errorf("%d admitted to %d processes; the limit is %d", len(admitted), busy, could)
				}
			})
		}
	}
}
