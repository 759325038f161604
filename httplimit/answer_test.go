package httplimit

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// headerVector is one sample of an answer's header with the reading that a client should make.
type headerVector struct {
	ID       string
	Provider string
	Status   int
	Headers  map[string]string
	Now      string
	Body     json.RawMessage
	Expect   struct {
		Wait         *float64 `json:"wait_seconds"`
		WaitFromDate *float64 `json:"wait_seconds_from_date"`
		WaitBoth     *float64 `json:"wait_seconds_if_both_exhausted"`
		WaitMillis   *float64 `json:"wait_ms"`
		WaitUntil    *int64   `json:"wait_until_epoch"`
		ResetEpoch   *int64   `json:"reset_epoch"`
		ResetSeconds *float64 `json:"reset_in_seconds"`
		ResetReqMS   *float64 `json:"reset_requests_ms"`
		ResetTokMS   *float64 `json:"reset_tokens_ms"`
		Remaining    *int64
		Limit        *int64
		Ignore       bool
		IgnorePacing bool `json:"ignore_for_request_pacing"`
		CapNeeded    bool `json:"cap_needed"`
		Backoff      bool
		Fatal        bool
		SmallerPage  bool `json:"retry_with_smaller_page"`
		Policies     []struct {
			Name string
			Q, W int64
		}
		Limits []struct {
			Name string
			R, T int64
		}
	}
}

func readVectors(t *testing.T, file string) []headerVector {
	t.Helper()
	b, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		t.Skipf("%s is not there: the samples of real providers are not part of this repository", file)
	}
	if err != nil {
		t.Fatal(err)
	}
	var all struct{ Vectors []headerVector }
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	if len(all.Vectors) == 0 {
		t.Fatalf("%s has no vectors", file)
	}
	return all.Vectors
}

// providers says which profile the samples of a provider are read with; the others are read with none.
var providers = map[string]string{"GitHub": "github", "NVD": "nvd", "OpenAI": "openai", "Slack": "slack", "Stripe": "stripe", "Shopify": "shopify", "Atlassian Jira Cloud": "jira"}

func TestReadAnswerOfRealProviders(t *testing.T) {
	testVectors(t, readVectors(t, "../../shared/data/response-header-vectors.json"))
}

func TestReadAnswerVectors(t *testing.T) {
	testVectors(t, readVectors(t, "testdata/answers.json"))
}

func testVectors(t *testing.T, vectors []headerVector) {
	for _, v := range vectors {
		t.Run(v.ID, func(t *testing.T) { testVector(t, &v) })
	}
}

func testVector(t *testing.T, v *headerVector) {
	e := &v.Expect
	h := http.Header{}
	for name, value := range v.Headers {
		h.Set(name, value)
	}
	now := time.Date(2026, 11, 30, 20, 0, 0, 0, time.UTC)
	switch {
	case v.Now != "":
		now, _ = time.Parse(time.RFC3339, v.Now)
	case e.WaitUntil != nil:
		now = time.Unix(*e.WaitUntil-1234, 0)
	case e.ResetEpoch != nil:
		now = time.Unix(*e.ResetEpoch-30, 0)
	}
	a := ReadAnswer(v.Status, h, nil, now, ProfileNamed(providers[v.Provider]))

	wait := func(want time.Duration) {
		t.Helper()
		if a.Wait != want || !a.Refused() {
			t.Errorf("wait %v (%s, %v), want %v; %+v", a.Wait, a.Source, a.Advice, want, a.Notes)
		}
	}
	inSeconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	for _, s := range []*float64{e.Wait, e.WaitFromDate, e.WaitBoth} {
		if s != nil {
			wait(inSeconds(*s))
		}
	}
	if e.WaitMillis != nil {
		wait(time.Duration(*e.WaitMillis) * time.Millisecond)
	}
	if e.WaitUntil != nil {
		wait(1234 * time.Second)
	}
	tight := a.Tightest()
	if e.Remaining != nil && (tight == nil || tight.Remaining != *e.Remaining) {
		t.Errorf("remaining %+v, want %d", tight, *e.Remaining)
	}
	if e.Limit != nil && (tight == nil || tight.Limit != *e.Limit) {
		t.Errorf("limit %+v, want %d", tight, *e.Limit)
	}
	if e.ResetEpoch != nil && tight.Reset != 30*time.Second {
		t.Errorf("reset in %v, want 30s", tight.Reset)
	}
	if e.ResetSeconds != nil && tight.Reset != inSeconds(*e.ResetSeconds) {
		t.Errorf("reset in %v, want %v s", tight.Reset, *e.ResetSeconds)
	}
	if e.ResetReqMS != nil {
		if got := quotaNamed(t, &a, "requests").Reset; got != time.Duration(*e.ResetReqMS)*time.Millisecond {
			t.Errorf("reset of requests in %v", got)
		}
		if got := quotaNamed(t, &a, "tokens").Reset; got != time.Duration(*e.ResetTokMS)*time.Millisecond {
			t.Errorf("reset of tokens in %v", got)
		}
	}
	for _, p := range e.Policies {
		q := quotaNamed(t, &a, p.Name)
		if q.Limit != p.Q || q.Window != time.Duration(p.W)*time.Second {
			t.Errorf("policy %+v, want %+v", q, p)
		}
	}
	for _, l := range e.Limits {
		q := quotaNamed(t, &a, l.Name)
		if q.Remaining != l.R || q.Reset != time.Duration(l.T)*time.Second {
			t.Errorf("limit %+v, want %+v", q, l)
		}
	}
	if e.Ignore && (a.Pause(100) != 0 || len(a.Quotas) != 0) {
		t.Errorf("pause %v, quotas %+v of an answer from a cache", a.Pause(100), a.Quotas)
	}
	if e.IgnorePacing && (a.Pause(1<<40) != 0 || a.Pace() != 0 || a.Tightest() != nil) {
		t.Errorf("pause %v, pace %v for a quota that does not count requests", a.Pause(1<<40), a.Pace())
	}
	if e.CapNeeded && a.Wait <= defaultMaxHold {
		t.Errorf("wait %v, which the default cap does not catch", a.Wait)
	}
	if e.Backoff && (!a.Refused() || a.Wait != 0) {
		t.Errorf("%v, wait %v; want a refusal without a time", a.Advice, a.Wait)
	}
	if e.Fatal && (a.Advice != Stop || a.Reason == "") {
		t.Errorf("%v, reason %q; want stop with the server's reason", a.Advice, a.Reason)
	}
	if e.SmallerPage && (a.Advice != Change || a.Reason == "") {
		t.Errorf("%v, reason %q; want change with the server's reason", a.Advice, a.Reason)
	}
}

func quotaNamed(t *testing.T, a *Answer, name string) Quota {
	t.Helper()
	for _, q := range a.Quotas {
		if q.Name == name {
			return q
		}
	}
	t.Errorf("no quota %q in %+v", name, a.Quotas)
	return Quota{}
}

// TestReadAnswerFields is one line a field: what it says on a 429, or that it says nothing.
func TestReadAnswerFields(t *testing.T) {
	const date = "Sun, 06 Nov 1994 08:49:37 GMT"
	for _, test := range []struct {
		field, value string
		wait         time.Duration
	}{
		{"Retry-After", "120", 2 * time.Minute},
		{"Retry-After", " 120 ", 2 * time.Minute},
		{"Retry-After", "1.5", 1500 * time.Millisecond},
		{"Retry-After", "0", 0},
		{"Retry-After", "0.0", 0},
		{"Retry-After", "-5", 0},
		{"Retry-After", "+5", 0},
		{"Retry-After", "5e3", 0},
		{"Retry-After", "0x10", 0},
		{"Retry-After", "1_000", 0},
		{"Retry-After", "5.", 0},
		{"Retry-After", ".5", 0},
		{"Retry-After", "NaN", 0},
		{"Retry-After", "Inf", 0},
		{"Retry-After", "soon", 0},
		{"Retry-After", "", 0},
		{"Retry-After", "30, 60", 0},
		{"Retry-After", "99999999999999999999", longestWait},
		{"Retry-After", "784111807", 784111807 * time.Second}, // too small for an instant of this century
		{"Retry-After", "1784111807", time.Unix(1784111807, 0).Sub(time.Unix(784111777, 0))},
		{"Retry-After", "Sun, 06 Nov 1994 08:50:37 GMT", time.Minute},
		{"Retry-After", "Sunday, 06-Nov-94 08:50:37 GMT", time.Minute},
		{"Retry-After", "Sun Nov  6 08:50:37 1994", time.Minute},
		{"Retry-After", "Sun, 06 Nov 1994 08:48:37 GMT", 0}, // past
		{"Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT", time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC).Sub(time.Unix(784111777, 0))},
		{"Retry-After-Ms", "1500", 1500 * time.Millisecond},
		{"X-Retry-In", "1m30s", 90 * time.Second},
		{"Ratelimit", `"a";r=0;t=30`, 30 * time.Second},
		{"Ratelimit", `"a";r=0;t=30, "b";r=0;t=50`, 50 * time.Second},
		{"Ratelimit", `"a";r=0;t=30, "b";r=9;t=50`, 30 * time.Second}, // b is not used up
		{"Ratelimit", `a;r=0;t=30`, 30 * time.Second},
		{"Ratelimit", `"a";a=0;w=30`, 30 * time.Second}, // as proposed
		{"Ratelimit", `"a";r=0;t=30;pk=:YQ:`, 30 * time.Second},
		{"Ratelimit", `"a:b:";r=0;t=30;pk=:YWE:;x=:YWJj:`, 30 * time.Second},
		{"Ratelimit", `"a";r=0;t=0`, 0},
		{"Ratelimit", `"a";r=0;t=30,`, 0},
		{"Ratelimit", `"a";R=0;t=30`, 0},
		{"Ratelimit", `"a";r;t=30`, 0},
		{"Ratelimit", `"a";r=0.0;t=30`, 0},
		{"Ratelimit", `"a";r=-1;t=30`, 0},
		{"Ratelimit", `"a";r=0;t="30"`, 0},
		{"Ratelimit", `"a";r=0;t=9999999999999999`, 0},
		{"Ratelimit", `"a";r=0;t=999999999999999`, longestWait},
		{"Ratelimit", `("a");r=0;t=30`, 0},
		{"Ratelimit", `5;r=0;t=30`, 0},
		{"Ratelimit", `"a";r=0;t=30;pk=:Y:`, 0},
		{"Ratelimit", `"a";r=0;t=30, ` + strings.Repeat(" ", maxFieldBytes), 0},
		{"Ratelimit", `limit=100, remaining=0, reset=5`, 5 * time.Second}, // draft 07
		{"Ratelimit", `limit=100, remaining=0, reset=-5`, 0},
		{"Ratelimit-Reset", "7", 7 * time.Second},
		{"Ratelimit-Reset", "784111807", 784111807 * time.Second},
		{"X-Ratelimit-Reset", "784111807000", longestWait}, // neither seconds nor an instant
		{"X-Ratelimit-Reset", "2147483647", (2147483647 - 784111777) * time.Second},
		{"X-Ratelimit-Reset", "2147483647000", (2147483647 - 784111777) * time.Second},
		{"X-Ratelimit-Reset", "1994-11-06T08:50:37Z", time.Minute},
		{"X-Ratelimit-Reset", "1994-11-06T08:50:37.5Z", time.Minute + 500*time.Millisecond},
		{"X-Ratelimit-Reset", "1994-11-06T09:50:37+01:00", time.Minute},
		{"X-Ratelimit-Reset", "1994-11-06T08:50Z", 82 * time.Second}, // its last second
		{"X-Ratelimit-Reset", "1994-11-06 08:50:37", time.Minute},
		{"X-Ratelimit-Reset", "Sun Nov 06 1994 09:50:37 GMT+0100 (Central European Standard Time)", time.Minute},
		{"X-Ratelimit-Reset", "6m0s", 6 * time.Minute},
		{"X-Ratelimit-Reset", "12ms", 12 * time.Millisecond},
		{"X-Ratelimit-Reset", "tomorrow", 0},
		{"X-Ratelimit-Reset-After", "0.5", 500 * time.Millisecond},
		{"X-Rate-Limit-Reset", "45", 45 * time.Second},
	} {
		h := http.Header{"Date": {date}, test.field: {test.value}}
		a := ReadAnswer(429, h, nil, time.Now(), nil)
		if a.Wait != test.wait || a.Advice != HoldOn {
			t.Errorf("%s: %.60q: wait %v, want %v; %+v", test.field, test.value, a.Wait, test.wait, a.Notes)
		}
		if len(a.Notes) == 0 {
			t.Errorf("%s: %.60q: not a word about it", test.field, test.value)
		}
	}
}

func TestReadAnswerAdvice(t *testing.T) {
	wait := http.Header{"Retry-After": {"30"}}
	for _, test := range []struct {
		status  int
		header  http.Header
		body    string
		profile string
		want    Advice
	}{
		{200, nil, "", "", GoOn},
		{200, wait, "", "", GoOn},
		{304, nil, "", "", GoOn},
		{302, wait, "", "", GoOn},
		{400, nil, "", "", Change},
		{401, nil, "", "", Change},
		{403, nil, "", "", Change},
		{403, wait, "", "", HoldOn},
		{403, http.Header{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"10"}}, "", "", HoldOn},
		{403, http.Header{"X-Ratelimit-Remaining": {"14"}, "X-Ratelimit-Reset": {"10"}}, "", "", Change},
		{403, nil, "", "github", HoldOn},
		{403, nil, `{"message":"You have exceeded a secondary Rate Limit."}`, "github", HoldOn},
		{403, nil, `{"message":"Resource not accessible by integration"}`, "github", Change},
		{403, http.Header{"X-Github-Request-Id": {"1"}}, "", "", HoldOn},
		{403, nil, "", "nvd", HoldOn},
		{404, nil, "", "nvd", GoOn},
		{404, http.Header{"Message": {"Invalid apiKey."}}, "", "nvd", Stop},
		{404, http.Header{"Message": {"Invalid apiKey."}}, "", "", GoOn},
		{408, nil, "", "", BackOff},
		{429, nil, "", "", HoldOn},
		{500, nil, "", "", BackOff},
		{501, nil, "", "", Change},
		{503, nil, "", "", BackOff},
		{503, wait, "", "", HoldOn},
		{503, http.Header{"Retry-After": {"0"}}, "", "", BackOff},
		{529, nil, "", "", BackOff},
	} {
		h := test.header
		if h == nil {
			h = http.Header{}
		}
		var body []byte
		if test.body != "" {
			body = []byte(test.body)
		}
		if a := ReadAnswer(test.status, h, body, time.Now(), ProfileNamed(test.profile)); a.Advice != test.want {
			t.Errorf("%d %v %q at %q: %v, want %v", test.status, h, test.body, test.profile, a.Advice, test.want)
		}
	}
}

func TestReadAnswerOfSeveralFields(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for _, test := range []struct {
		name    string
		header  http.Header
		profile string
		wait    time.Duration
		source  string
	}{
		{"two lines, the longer", http.Header{"Retry-After": {"5", "9"}}, "", 9 * time.Second, "Retry-After"},
		{"one of two is malformed", http.Header{"Retry-After": {"5", "x"}}, "", 5 * time.Second, "Retry-After"},
		{"a quota comes back later", http.Header{"Retry-After": {"5"}, "Ratelimit": {`"day";r=0;t=60`}}, "", time.Minute, "RateLimit"},
		{"a quota that is not used up does not count", http.Header{"Retry-After": {"5"}, "Ratelimit": {`"day";r=3;t=60`}}, "", 5 * time.Second, "Retry-After"},
		{"unless there is nothing else", http.Header{"Ratelimit": {`"day";r=3;t=60`}}, "", time.Minute, "RateLimit"},
		{"a reset that is when all is back", http.Header{"Retry-After": {"5"}, "X-Ratelimit-Remaining-Requests": {"0"}, "X-Ratelimit-Reset-Requests": {"6m0s"}}, "openai", 5 * time.Second, "Retry-After"},
		{"milliseconds are finer", http.Header{"Retry-After": {"2"}, "Retry-After-Ms": {"1543"}}, "", 1543 * time.Millisecond, "Retry-After-Ms"},
		{"unless they are another wait", http.Header{"Retry-After": {"60"}, "Retry-After-Ms": {"1543"}}, "", time.Minute, "Retry-After"},
		{"bytes do not pace requests, but refuse them", http.Header{"Ratelimit-Policy": {`"b";q=9;qu="content-bytes"`}, "Ratelimit": {`"b";r=0;t=7`}}, "", 7 * time.Second, "RateLimit"},
		{"resets that disagree", http.Header{"X-Ratelimit-Reset": {"5", "50"}}, "", 0, ""},
		{"old milliseconds", http.Header{"Retry-After": {"6457"}}, "discord-v6", 6457 * time.Millisecond, "Retry-After"},
	} {
		a := ReadAnswer(429, test.header, nil, now, ProfileNamed(test.profile))
		if a.Wait != test.wait || a.Source != test.source {
			t.Errorf("%s: %v by %q, want %v by %q; %+v", test.name, a.Wait, a.Source, test.wait, test.source, a.Notes)
		}
	}
}

func TestAnswerPauseAndPace(t *testing.T) {
	h := http.Header{
		"Ratelimit-Policy": {`"burst";q=100;w=60, "bytes";q=9;qu="content-bytes"`},
		"Ratelimit":        {`"burst";r=4;t=60, "bytes";r=0;t=3600`},
	}
	a := ReadAnswer(200, h, nil, time.Now(), nil)
	if got := a.Pause(3); got != 0 {
		t.Errorf("with 4 units left and 3 requests under way: pause %v", got)
	}
	if got := a.Pause(4); got != time.Minute {
		t.Errorf("with 4 units left and 4 requests under way: pause %v, want 1m", got)
	}
	if got := a.Pace(); got != 15*time.Second {
		t.Errorf("pace %v, want 15s", got)
	}
	if a.Wait != 0 || a.Advice != GoOn {
		t.Errorf("%v, wait %v of a 200", a.Advice, a.Wait)
	}
}

// FuzzReadAnswer: no header makes it panic, wait for less than no time, or take a field that is half understood.
func FuzzReadAnswer(f *testing.F) {
	f.Add(429, "Retry-After", "Sun, 06 Nov 1994 08:50:37 GMT", "Ratelimit", `"a";r=0;t=30;pk=:YQ:`)
	f.Add(403, "X-Ratelimit-Reset", "Tue Feb 16 2021 09:02:42 GMT+0100 (CET)", "Date", "Sun Nov  6 08:49:37 1994")
	f.Add(503, "Ratelimit-Limit", "10, 10;w=1, 50;w=60", "Ratelimit", "limit=100, remaining=0, reset=5")
	f.Add(200, "Ratelimit-Policy", `"a";q=9;qu=x, b;q=1;w=3`, "Age", "1e9")
	f.Fuzz(func(t *testing.T, status int, name1, value1, name2, value2 string) {
		h := http.Header{}
		h.Add(name1, value1)
		h.Add(name2, value2)
		now := time.Unix(1_800_000_000, 0)
		for _, p := range append([]*Profile{nil}, Profiles...) {
			a := ReadAnswer(status, h, []byte(value2), now, p)
			if a.Wait < 0 || a.Wait > 0 && a.Source == "" || a.Wait > 0 && a.Advice != HoldOn && a.Advice != BackOff {
				t.Fatalf("%+v", a)
			}
			if status == 429 && a.Advice != HoldOn {
				t.Fatalf("a 429 advises %v", a.Advice)
			}
			if a.Pause(5) < 0 || a.Pace() < 0 {
				t.Fatalf("pause %v, pace %v", a.Pause(5), a.Pace())
			}
			for _, q := range a.Quotas {
				if q.Limit < Unknown || q.Remaining < Unknown || q.Reset < Unknown || q.Window < 0 {
					t.Fatalf("%+v", q)
				}
			}
			for _, n := range a.Notes {
				if len(n.Value) > 220 {
					t.Fatalf("a note of %d bytes", len(n.Value))
				}
			}
		}
	})
}
