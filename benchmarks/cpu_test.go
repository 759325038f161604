package benchmarks

import (
	"syscall"
	"testing"
	"time"
)

// cpu begins to count the processor time of this process. The function that it returns reports it as cpu-ns/op, which
// other programs on the machine disturb far less than the time on the wall.
func cpu(b *testing.B) (report func()) {
	b.ReportAllocs()
	start := cpuTime()
	return func() { b.ReportMetric(float64(cpuTime()-start)/float64(b.N), "cpu-ns/op") }
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
