package browsertest

import (
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
)

func TestPage(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Write([]byte(`<input id="a"><button onclick="setTimeout(() => out.textContent = a.value, 50)">go</button><p id="out">`))
	}))
	defer server.Close()
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	t.Run("a reader", func(t *testing.T) {
		p := Open(t)
		p.Size(400, 300)
		p.Scheme("dark")
		p.Visit(server.URL)
		p.Set("#a", "a")
		p.Type("#a", "bc")
		p.Click("button")
		p.Until(`out.textContent.endsWith("bc")`)
		p.Run(`var left = 7`)
		if got := Eval[int](p, `new Promise(done => done(left))`); got != 7 {
			t.Errorf("left %d", got)
		}
		if !Eval[bool](p, `innerWidth == 400 && matchMedia("(prefers-color-scheme: dark)").matches`) {
			t.Error("the page is not of this size, or not dark")
		}
		p.Reload()
		p.Until(`out.textContent == ""`)
	})
	left, err := os.ReadDir(tmp)
	if err != nil || len(left) > 0 {
		t.Errorf("the browser left %v, %v", left, err)
	}
}
