package blackfriday

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

const width = 96 // columns of everything but the refused answer

// WriteText writes the report for people to read.
func (r *Report) WriteText(out io.Writer) error {
	w := bufio.NewWriter(out)
	r.writeScene(w)
	r.writeTimeline(w)
	r.writeTable(w)
	r.writeRefusal(w)
	fmt.Fprintln(w)
	for _, sentence := range r.Conclusion {
		writeWrapped(w, sentence)
	}
	return w.Flush()
}

func (r *Report) writeScene(w io.Writer) {
	fmt.Fprintf(w, "Black Friday, measured on this machine (%s, %s/%s) in %.0f seconds\n\n",
		plural(r.Machine.CPUs, "core"), r.Machine.OS, r.Machine.Arch, r.Seconds)
	fmt.Fprintf(w, "  proxy     passes on %s requests a second here, to a server that answers at once\n", count(r.PathPerSecond))
	b := r.Backend
	fmt.Fprintf(w, "  backend   serves %s requests a second: %s × %s ms, a queue of %s, gives up after %s s\n",
		count(b.Capacity), plural(b.Workers, "worker"), short(b.ServiceMS), count(float64(b.Queue)), short(b.GivesUpMS/1000))
	fmt.Fprintf(w, "            tried at nine tenths of that: %s served a second, 99 of 100 within %s ms\n",
		count(r.Trial.PerSecond), short(r.Trial.P99))
	fmt.Fprintf(w, "  wave      %s times as much: up to %s requests a second, the same in both acts of %s s\n",
		short(r.Wave.Factor), count(r.Wave.Peak), short(r.Wave.Seconds))
	if len(r.Acts) > 0 {
		a := &r.Acts[0]
		var parts []string
		for _, c := range a.Classes[:len(a.Classes)-1] {
			parts = append(parts, c.Name+" "+percent(c.Sent, a.all().Sent))
		}
		fmt.Fprintf(w, "            %s requests: %s\n", count(float64(a.all().Sent)), strings.Join(parts, ", "))
	}
	for i, l := range r.Limits {
		label, what := "", fmt.Sprintf("back-office reads leave %d of it to orders", 2*l.Headroom)
		if i == 0 {
			label = "limits"
		}
		if l.Headroom == 0 {
			what = "for each client address"
		}
		fmt.Fprintf(w, "  %-9s %-8s %7s, burst %d: %s\n", label, l.Name, l.Rate, l.Burst, what)
	}
}

func (r *Report) writeTimeline(w io.Writer) {
	if len(r.Acts) == 0 {
		return
	}
	top := int64(1)
	for _, n := range r.Acts[0].OrdersSent {
		top = max(top, n)
	}
	end := short(r.Wave.Seconds) + " s"
	fmt.Fprintf(w, "\n  %-24s 0 s%*s\n", "orders over time", len(r.Acts[0].OrdersSent)-3, end)
	fmt.Fprintf(w, "    %-22s %s\n", "sent", bars(r.Acts[0].OrdersSent, top))
	for _, a := range r.Acts {
		fmt.Fprintf(w, "    %-22s %s\n", "served "+a.Name, bars(a.OrdersServed, top))
	}
}

// bars draws each number as a block, as high as its share of top, and none for zero.
func bars(numbers []int64, top int64) string {
	var b strings.Builder
	for _, n := range numbers {
		if n == 0 {
			b.WriteRune('·')
			continue
		}
		b.WriteRune([]rune("▁▂▃▄▅▆▇█")[min(7, n*8/(top+1))])
	}
	return b.String()
}

func (r *Report) writeTable(w io.Writer) {
	const row = "%-18s%9s%9s%8s%9s%9s%11s%9s%9s\n"
	fmt.Fprintln(w)
	for i, a := range r.Acts {
		if i == 0 {
			fmt.Fprintf(w, "  "+row, a.Name, "sent", "served", "", "429", "5xx", "no answer", "p50", "p99")
		} else {
			fmt.Fprintln(w, "  "+a.Name)
		}
		for _, c := range a.Classes {
			fmt.Fprintf(w, "    "+strings.Replace(row, "18", "16", 1), c.Name, count(float64(c.Sent)), count(float64(c.Served)), percent(c.Served, c.Sent),
				count(float64(c.Refused)), count(float64(c.Failed)), count(float64(c.Unanswered)), latency(c, c.P50), latency(c, c.P99))
			if c.Other > 0 {
				fmt.Fprintf(w, "    %-16s%9s with another status\n", "", count(float64(c.Other)))
			}
		}
	}
	fmt.Fprintln(w)
	writeWrapped(w, "Latencies are of the served, from the instant at which a request was due.")
}

func (r *Report) writeRefusal(w io.Writer) {
	if r.Refusal == nil {
		return
	}
	fmt.Fprintln(w)
	body, how := r.Refusal.Body, ""
	if text := new(bytes.Buffer); json.Indent(text, []byte(body), "", "  ") == nil {
		body, how = text.String(), ", its body indented"
	}
	writeWrapped(w, "The first refusal of the runaway client"+how+":")
	fmt.Fprintf(w, "\n    %s\n", r.Refusal.Status)
	for _, name := range slices.Sorted(maps.Keys(r.Refusal.Header)) {
		for _, value := range r.Refusal.Header[name] {
			fmt.Fprintf(w, "    %s: %s\n", strings.Replace(name, "Ratelimit", "RateLimit", 1), value) // net/http's spelling, and the standard's
		}
	}
	fmt.Fprintln(w)
	for line := range strings.Lines(body) {
		fmt.Fprintf(w, "    %s\n", strings.TrimRight(line, "\r\n"))
	}
}

// writeWrapped writes a paragraph with an indent of two.
func writeWrapped(w io.Writer, text string) {
	line := " "
	for word := range strings.FieldsSeq(text) {
		if utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			fmt.Fprintln(w, line)
			line = " "
		}
		line += " " + word
	}
	fmt.Fprintln(w, line)
}

func latency(c Class, ms float64) string {
	if c.Served == 0 {
		return "–"
	}
	return short(ms) + " ms"
}

// short is x with two to three digits of use.
func short(x float64) string {
	digits := 0
	if x < 10 {
		digits = 1
	}
	return strings.TrimSuffix(strconv.FormatFloat(x, 'f', digits, 64), ".0")
}

// count is x rounded, its thousands set apart.
func count(x float64) string {
	s := strconv.FormatFloat(x, 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// percent is never 100 when something is missing, nor 0 when there is something.
func percent(n, of int64) string {
	x := 100 * float64(n) / float64(max(1, of))
	switch {
	case n == 0, n == of:
		return strconv.FormatFloat(x, 'f', 0, 64) + " %"
	case x < 0.1:
		return "<0.1 %"
	case x > 99.9:
		return ">99.9 %"
	case x < 10 || x > 99:
		return strconv.FormatFloat(x, 'f', 1, 64) + " %"
	}
	return strconv.FormatFloat(x, 'f', 0, 64) + " %"
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return count(float64(n)) + " " + noun + "s"
}
