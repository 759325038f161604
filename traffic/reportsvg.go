package traffic

import (
	"fmt"
	"html"
	"math"
	"strings"
	"time"
)

// The size of a chart in its own units; the page scales it.
const (
	chartWidth  = 880.0
	chartHeight = 250.0
	plotLeft    = 56.0
	plotRight   = 14.0
	plotTop     = 12.0
	plotBottom  = 30.0
)

// plot maps values to the plane.
type plot struct {
	n      int
	most   float64
	bottom float64
}

func (p *plot) x(i float64) float64 {
	return plotLeft + (chartWidth-plotLeft-plotRight)*i/float64(max(1, p.n-1))
}

func (p *plot) y(v float64) float64 {
	return p.bottom - (p.bottom-plotTop)*v/p.most
}

// svg draws the chart.
func (c *Chart) svg() string {
	n, most, any := 0, 0.0, false
	var stack []float64
	for _, l := range c.Lines {
		n = max(n, len(l.Values))
		for i, v := range l.Values {
			if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
				continue
			}
			any = true
			if l.Area {
				for len(stack) <= i {
					stack = append(stack, 0)
				}
				stack[i] += v
				v = stack[i]
			}
			most = max(most, v)
		}
	}
	for _, b := range c.Bounds {
		if b.Value <= 20*most || most == 0 { // one far above everything would flatten it
			most = max(most, b.Value)
		}
	}
	if n == 0 {
		return `<p class="none">No traffic.</p>`
	}
	if !any {
		return `<p class="none">There is none.</p>`
	}
	step := niceStep(most)
	p := &plot{n: n, most: math.Ceil(most/step*1.02) * step, bottom: chartHeight - plotBottom}
	if p.most == 0 {
		p.most = 1
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img" aria-label="%s">`, chartWidth, chartHeight, html.EscapeString(c.Title+", "+c.Unit))
	for _, m := range c.Marks {
		from, to := p.x(float64(m.From)/float64(c.Step)), p.x(float64(m.To)/float64(c.Step))
		from = min(from, chartWidth-plotRight-3)
		to = min(max(to, from+3), chartWidth-plotRight)
		fmt.Fprintf(&b, `<rect class="mark" x="%.1f" y="%g" width="%.1f" height="%.1f"><title>%s</title></rect>`,
			from, plotTop, to-from, p.bottom-plotTop, html.EscapeString(m.Name))
	}
	for v := 0.0; v <= p.most*1.0001; v += step {
		fmt.Fprintf(&b, `<line class="grid" x1="%g" x2="%g" y1="%.1f" y2="%.1f"/><text class="tick" x="%g" y="%.1f" text-anchor="end">%s</text>`,
			plotLeft, chartWidth-plotRight, p.y(v), p.y(v), plotLeft-8, p.y(v)+4, short(v))
	}
	c.timeAxis(&b, p)
	base := make([]float64, n)
	for _, l := range c.Lines {
		if l.Area {
			c.area(&b, p, &l, base)
		} else {
			c.line(&b, p, &l)
		}
	}
	for _, bound := range c.Bounds {
		if bound.Value > p.most {
			continue
		}
		y := p.y(bound.Value)
		fmt.Fprintf(&b, `<line class="bound" x1="%g" x2="%g" y1="%.1f" y2="%.1f"/><text class="boundname" x="%g" y="%.1f" text-anchor="end">%s</text>`,
			plotLeft, chartWidth-plotRight, y, y, chartWidth-plotRight-4, max(y-5, 11), html.EscapeString(bound.Name))
	}
	c.hovers(&b, p)
	b.WriteString(`</svg>`)
	c.legend(&b)
	return b.String()
}

func niceStep(most float64) float64 {
	if most <= 0 {
		return 1
	}
	raw := most / 4
	power := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 2.5, 5, 10} {
		if m*power >= raw*0.999 {
			return m * power
		}
	}
	return 10 * power
}

// timeSteps are the distances of marks on the axis of time.
var timeSteps = []time.Duration{
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	24 * time.Hour, 48 * time.Hour, 7 * 24 * time.Hour, 14 * 24 * time.Hour, 28 * 24 * time.Hour, 91 * 24 * time.Hour, 364 * 24 * time.Hour,
}

func (c *Chart) timeAxis(b *strings.Builder, p *plot) {
	if c.Step <= 0 {
		return
	}
	length := c.Step * time.Duration(max(1, p.n-1))
	step := timeSteps[len(timeSteps)-1]
	for _, s := range timeSteps {
		if length/s <= 9 {
			step = s
			break
		}
	}
	first := time.Duration(0)
	if !c.Start.IsZero() {
		if over := time.Duration(c.Start.UnixNano()) % step; over > 0 {
			first = step - over
		}
	}
	for at := first; at <= length; at += step {
		x := p.x(float64(at) / float64(c.Step))
		fmt.Fprintf(b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/><text class="tick" x="%.1f" y="%.1f" text-anchor="middle">%s</text>`,
			x, x, p.bottom, p.bottom+5, x, p.bottom+19, c.moment(at, step))
	}
}

// moment is an instant of the axis, as exact as a step asks for.
func (c *Chart) moment(at, step time.Duration) string {
	if c.Start.IsZero() {
		return shortDuration(at)
	}
	t := c.Start.Add(at)
	switch {
	case step >= 24*time.Hour:
		return t.Format("2 Jan")
	case step >= time.Hour && t.Hour() == 0 && t.Minute() == 0:
		return t.Format("2 Jan")
	case step >= time.Minute:
		return t.Format("15:04")
	}
	return t.Format("15:04:05")
}

// shortDuration is d without the units that are zero at its end.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func (c *Chart) area(b *strings.Builder, p *plot, l *Line, base []float64) {
	var upper, lower strings.Builder
	for i := range base {
		v := 0.0
		if i < len(l.Values) && l.Values[i] > 0 && !math.IsInf(l.Values[i], 0) {
			v = l.Values[i]
		}
		fmt.Fprintf(&upper, "%.1f,%.1f ", p.x(float64(i)), p.y(base[i]+v))
		j := len(base) - 1 - i
		fmt.Fprintf(&lower, "%.1f,%.1f ", p.x(float64(j)), p.y(base[j]))
	}
	for i := range base {
		if i < len(l.Values) && l.Values[i] > 0 && !math.IsInf(l.Values[i], 0) {
			base[i] += l.Values[i]
		}
	}
	fmt.Fprintf(b, `<polygon class="area %s" points="%s"/>`, l.Role, upper.String()+strings.TrimSpace(lower.String()))
}

func (c *Chart) line(b *strings.Builder, p *plot, l *Line) {
	var points strings.Builder
	for i := 0; i <= len(l.Values); i++ {
		if i < len(l.Values) && !math.IsNaN(l.Values[i]) && !math.IsInf(l.Values[i], 0) {
			fmt.Fprintf(&points, "%.1f,%.1f ", p.x(float64(i)), p.y(max(0, l.Values[i])))
			continue
		}
		if points.Len() > 0 {
			fmt.Fprintf(b, `<polyline class="line %s" points="%s"/>`, l.Role, strings.TrimSpace(points.String()))
			points.Reset()
		}
	}
}

// hovers are strips over the chart that say the values below them.
func (c *Chart) hovers(b *strings.Builder, p *plot) {
	width := (chartWidth - plotLeft - plotRight) / float64(max(1, p.n-1))
	for i := range p.n {
		at := c.Step * time.Duration(i)
		when := shortDuration(at)
		if !c.Start.IsZero() {
			when = c.Start.Add(at).Format("2 Jan 15:04:05")
		}
		fmt.Fprintf(b, `<rect class="hover" x="%.1f" y="%g" width="%.1f" height="%.1f"><title>%s`,
			p.x(float64(i))-width/2, plotTop, width, p.bottom-plotTop, html.EscapeString(when))
		for _, l := range c.Lines {
			if i < len(l.Values) && !math.IsNaN(l.Values[i]) {
				fmt.Fprintf(b, "\n%s: %s", html.EscapeString(l.Name), short(l.Values[i]))
			}
		}
		b.WriteString(`</title></rect>`)
	}
}

func (c *Chart) legend(b *strings.Builder) {
	b.WriteString(`<p class="legend">`)
	for _, l := range c.Lines {
		fmt.Fprintf(b, `<span><i class="%s"></i>%s</span>`, l.Role, html.EscapeString(l.Name))
	}
	for _, bound := range c.Bounds {
		fmt.Fprintf(b, `<span><i class="boundkey"></i>%s</span>`, html.EscapeString(bound.Name))
	}
	for i, m := range c.Marks {
		if i == 0 {
			fmt.Fprintf(b, `<span><i class="mark"></i>%s</span>`, html.EscapeString(m.Name))
		}
	}
	fmt.Fprintf(b, `<span class="unit">%s</span></p>`, html.EscapeString(c.Unit))
}

// svg draws the bars, the longest first as they are given.
func (c *Bars) svg() string {
	most := 0.0
	for _, bar := range c.Items {
		most = max(most, bar.Total, bar.Refused)
	}
	if most == 0 {
		return `<p class="none">Nothing to show.</p>`
	}
	const (
		row, name, value = 24.0, 250.0, 190.0
		room             = chartWidth - name - value
	)
	height := row * float64(len(c.Items))
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img" aria-label="%s">`, chartWidth, height, html.EscapeString(c.Title+", "+c.Unit))
	for i, bar := range c.Items {
		y := row * float64(i)
		served := room * max(0, bar.Total-bar.Refused) / most
		refused := room * bar.Refused / most
		if bar.Refused > 0 {
			refused = max(refused, 1.5)
		}
		label := []rune(bar.Name)
		if len(label) > 34 {
			label = append(label[:33:33], '…')
		}
		text := short(bar.Total)
		if bar.Refused > 0 {
			text += fmt.Sprintf(", %s refused", Percent(int64(math.Round(bar.Refused)), int64(math.Round(bar.Total))))
		}
		fmt.Fprintf(&b, `<g><title>%s: %s</title><text class="barname" x="%g" y="%.1f" text-anchor="end">%s</text>`,
			html.EscapeString(bar.Name), html.EscapeString(text), name-10, y+16, html.EscapeString(string(label)))
		fmt.Fprintf(&b, `<rect class="area served" x="%g" y="%.1f" width="%.1f" height="14"/><rect class="area refused" x="%.1f" y="%.1f" width="%.1f" height="14"/>`,
			name, y+5, served, name+served, y+5, refused)
		fmt.Fprintf(&b, `<text class="tick" x="%.1f" y="%.1f">%s</text></g>`, name+served+refused+8, y+16, html.EscapeString(text))
	}
	b.WriteString(`</svg>`)
	fmt.Fprintf(&b, `<p class="legend"><span><i class="served"></i>served</span><span><i class="refused"></i>refused</span><span class="unit">%s</span></p>`, html.EscapeString(c.Unit))
	return b.String()
}
