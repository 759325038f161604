package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/traffic"
)

// printSimulation writes the results for a terminal.
func printSimulation(w io.Writer, r *traffic.SimulationReport) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n", r.Source)
	if r.Agreed != "" {
		fmt.Fprintf(&b, "%s\n", r.Agreed)
	}
	for _, p := range r.Results {
		b.WriteByte('\n')
		if p.Requests == 0 {
			fmt.Fprintf(&b, "%s: no requests\n", p.Policy)
			continue
		}
		fmt.Fprintf(&b, "%s: %s, %s to %s\n", p.Policy, requests(p.Requests), instant(p.From), instant(p.To))
		fmt.Fprintf(&b, "  refused %s (%s)", traffic.Count(p.Refused), traffic.Percent(p.Refused, p.Requests))
		if p.Worst.Refused > 0 {
			fmt.Fprintf(&b, ", most in the minute of %s: %s of %s", instant(p.Worst.At), traffic.Count(p.Worst.Refused), traffic.Count(p.Worst.Asked))
		}
		b.WriteByte('\n')
		if p.Returned > 0 {
			fmt.Fprintf(&b, "  after a refusal somebody came back %s; %s (%s) served then\n",
				traffic.CountOf(p.Returned, "time", "times"), requests(p.Later), traffic.Percent(p.Later, p.Requests))
		}
		b.WriteByte('\n')
		rows := [][]string{{"  kind", "requests", "refused", "share", "worst minute"}}
		const most = 20
		for i, c := range p.Classes {
			if i == most {
				rows = append(rows, []string{fmt.Sprintf("  and %d more", len(p.Classes)-most)})
				break
			}
			worst := ""
			if c.Worst.Refused > 0 {
				worst = fmt.Sprintf("%s of %s at %s", traffic.Count(c.Worst.Refused), traffic.Count(c.Worst.Asked), c.Worst.At.UTC().Format("2 Jan 15:04"))
			}
			rows = append(rows, []string{"  " + c.Name, traffic.Count(c.Requests), traffic.Count(c.Refused), traffic.Percent(c.Refused, c.Requests), worst})
		}
		columns(&b, rows, 1, 2, 3)
		for i := range p.Limits {
			printLimit(&b, &p.Limits[i])
		}
	}
	if slices.ContainsFunc(r.Results, compared) {
		b.WriteString(`
*                     the algorithm of the configuration
most in any period    units that one key really got, in any stretch of the limit's period
can be                the most that it could be, whatever the traffic
wrongly               otherwise than by an exact log of what this algorithm had let through till then; buckets promise no window
`)
	}
	if len(r.Notes) > 0 {
		b.WriteByte('\n')
		for _, note := range r.Notes {
			fmt.Fprintf(&b, "note: %s\n", note)
		}
	}
	if len(r.Verdicts) > 0 {
		b.WriteByte('\n')
	}
	for i := range r.Verdicts {
		j := &r.Verdicts[i]
		sign, under := "yes", ""
		if !j.OK {
			sign = "NO "
		}
		if len(r.Results) > 1 {
			under = " under " + j.Policy
		}
		fmt.Fprintf(&b, "%s  %s%s %s\n", sign, j.Class, under, j)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// compared reports whether limits of a policy are shown with other algorithms.
func compared(p *traffic.Simulated) bool {
	return slices.ContainsFunc(p.Limits, func(l traffic.LimitResult) bool { return len(l.Algorithms) > 0 && l.Asked > 0 })
}

func instant(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

func printLimit(b *bytes.Buffer, l *traffic.LimitResult) {
	fmt.Fprintf(b, "\nlimit %s\n", l.Text())
	if l.Asked == 0 {
		b.WriteString("  never asked\n")
		return
	}
	about := ""
	if l.KeysPart > 1 {
		about = "about "
	}
	fmt.Fprintf(b, "  refused %s of %s (%s)", traffic.Count(l.Refused), traffic.Count(l.Asked), traffic.Percent(l.Refused, l.Asked))
	if l.Keys > 1 {
		fmt.Fprintf(b, ", %s%s of %s keys (%s)", about, traffic.Count(l.KeysRefused), traffic.Count(l.Keys), traffic.Percent(l.KeysRefused, l.Keys))
	}
	b.WriteByte('\n')
	fmt.Fprintf(b, "  units a key asks for in %s: p50 %s, p99 %s, most %s (%sat %s); in its own busiest: p50 %s, p99 %s\n", aPeriod(l.Rate),
		traffic.Count(l.Demand.P50), traffic.Count(l.Demand.P99), traffic.Count(l.Demand.Max), keyText(l.Window.Key), instant(l.Window.At),
		traffic.Count(l.KeyPeak.P50), traffic.Count(l.KeyPeak.P99))
	if len(l.TopRefused) > 0 && l.Keys > 1 {
		rows := [][]string{{"  refused most", "refused", "of", "share"}}
		for _, k := range l.TopRefused {
			rows = append(rows, []string{"  " + strings.TrimSpace(keyText(k.Key)), traffic.Count(k.Refused), traffic.Count(k.Asked), traffic.Percent(k.Refused, k.Asked)})
		}
		columns(b, rows, 1, 2, 3)
	}
	if len(l.Algorithms) > 0 {
		fmt.Fprintf(b, "  by each algorithm, as the only limit%s:\n", l.WithoutReturns())
		rows, chosen := l.AlgorithmRows()
		head := append([]string{}, traffic.AlgorithmHead...)
		head[0] = "  " + head[0]
		all := [][]string{head}
		for i, row := range rows {
			mark := "  "
			if i+1 == chosen {
				mark = "* "
			}
			row[0] = mark + row[0]
			all = append(all, row)
		}
		columns(b, all, 1, 2, 3, 4, 5, 6)
		for _, problem := range l.Problems() {
			fmt.Fprintf(b, "  %s\n", problem)
		}
	}
	if l.Suggested != nil {
		fmt.Fprintf(b, "  suggested: %s\n", l.Suggested.Sentence(l))
	}
}

// aPeriod is a rate's period in words: a minute, or 30s.
func aPeriod(r weir.Rate) string {
	switch r.Period {
	case time.Second:
		return "a second"
	case time.Minute:
		return "a minute"
	case time.Hour:
		return "an hour"
	}
	_, text, _ := strings.Cut(r.String(), "/")
	return text
}

func keyText(key string) string {
	if key == "" {
		return ""
	}
	return key + " "
}

// columns writes rows in columns, the given ones to the right.
func columns(b *bytes.Buffer, rows [][]string, right ...int) {
	width := map[int]int{}
	for _, row := range rows {
		for _, i := range right {
			if i < len(row) {
				width[i] = max(width[i], len([]rune(row[i])))
			}
		}
	}
	w := tabwriter.NewWriter(b, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = strings.Repeat(" ", max(0, width[i]-len([]rune(cell)))) + cell
		}
		fmt.Fprintln(w, strings.TrimRight(strings.Join(cells, "\t"), "\t "))
	}
	w.Flush()
}
