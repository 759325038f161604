package httplimit

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/dunglas/httpsfv"
)

// The parser that reads our fields back in these tests is held against the official tests of structured fields (httpwg), so that
// what it accepts is what clients accept.
func TestReaderOfTheseTests(t *testing.T) {
	const dir = "../../shared/data/sf-tests/"
	cases := 0
	for _, file := range []string{"list.json", "param-list.json", "string.json", "number.json", "item.json"} {
		data, err := os.ReadFile(dir + file)
		if errors.Is(err, fs.ErrNotExist) {
			t.Skipf("%s is not there", dir+file)
		}
		var tests []struct {
			Name       string   `json:"name"`
			Raw        []string `json:"raw"`
			HeaderType string   `json:"header_type"`
			MustFail   bool     `json:"must_fail"`
			CanFail    bool     `json:"can_fail"`
			Canonical  []string `json:"canonical"`
		}
		if err == nil {
			err = json.Unmarshal(data, &tests)
		}
		if err != nil {
			t.Fatal(file, err)
		}
		for _, c := range tests {
			var v httpsfv.StructuredFieldValue
			switch c.HeaderType {
			case "list":
				v, err = httpsfv.UnmarshalList(c.Raw)
			case "item":
				v, err = httpsfv.UnmarshalItem(c.Raw)
			default:
				continue
			}
			cases++
			switch {
			case c.MustFail != (err != nil) && !c.CanFail:
				t.Errorf("%s, %s: error %v, must fail %t", file, c.Name, err, c.MustFail)
			case err == nil:
				want := c.Canonical
				if want == nil {
					want = c.Raw
				}
				text, err := httpsfv.Marshal(v)
				if err != nil || len(want) == 1 && text != want[0] {
					t.Errorf("%s, %s: %q, want %q, %v", file, c.Name, text, want, err)
				}
			}
		}
	}
	if cases < 50 {
		t.Errorf("only %d cases", cases)
	}
}
