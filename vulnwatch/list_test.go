package vulnwatch

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestReadList(t *testing.T) {
	ids, problems, err := ReadList(strings.NewReader("\ufeffCVE-2024-3094 # xz\r\n\n# all of it\n cve-2021-44228\nCVE-2024-3094\nCVE-24-1\nlog4shell\n"))
	if err != nil || !slices.Equal(ids, []string{"CVE-2024-3094", "CVE-2021-44228"}) {
		t.Errorf("%q, %v", ids, err)
	}
	want := []string{
		"line 5: CVE-2024-3094 stands in line 1 already",
		`line 6: "CVE-24-1" is no CVE id; the form is CVE-2024-3094`,
		`line 7: "log4shell" is no CVE id; the form is CVE-2024-3094`,
	}
	var got []string
	for _, p := range problems {
		got = append(got, p.String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("problems %q", got)
	}
	if got, want := NoIDs(problems), `2 lines of the list are no CVE ids: line 6 "CVE-24-1", line 7 "log4shell"`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := NoIDs(problems[:1]); got != "" {
		t.Errorf("of a list with an id twice: %q", got)
	}
	_, _, err = ReadList(strings.NewReader("CVE-2024-3094\n\n" + strings.Repeat("x", 1<<17)))
	if err == nil || !strings.Contains(err.Error(), "line 3") {
		t.Errorf("a line without end: %v", err)
	}
	for _, text := range []string{"\xFF\xFEC\x00V\x00E\x00", "\xFE\xFF\x00C\x00V\x00E"} {
		if _, _, err := ReadList(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), "UTF-16") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func ExampleReadList() {
	ids, problems, _ := ReadList(strings.NewReader("CVE-2024-3094  # xz\nCVE-2021-44228\nheartbleed\n"))
	fmt.Println(ids)
	fmt.Println(problems)
	fmt.Println(NoIDs(problems))
	// Output:
	// [CVE-2024-3094 CVE-2021-44228]
	// [line 3: "heartbleed" is no CVE id; the form is CVE-2024-3094]
	// 1 line of the list is no CVE id: line 3 "heartbleed"
}
