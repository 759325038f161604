package redisstore_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/redisstore"
)

func TestOpenRefuses(t *testing.T) {
	for _, url := range []string{
		"", "localhost:6379", "http://localhost", "redis://h:6379/x", "redis://h/1/2", "unix://", "redis://u:hunter2@h:6379/x",
		"redis://u:hunter2@h:port", "redis://h?cluster=perhaps", "redis://h?dial_timeout=fast",
	} {
		c, err := redisstore.Open(url)
		if err == nil {
			c.Close()
			t.Errorf("%q was taken", url)
			continue
		}
		if text := err.Error(); strings.Contains(text, "hunter2") || !strings.HasPrefix(text, "weir: redis: ") {
			t.Errorf("%q: %v", url, err)
		}
	}
}

// decides takes 3 of 2 units through a URL.
func decides(t *testing.T, url string) {
	t.Helper()
	lim := weir.Limiter{Store: &redisstore.Store{Client: open(t, url), Prefix: t.Name(), Timeout: 10 * time.Second}}
	l := &weir.Limit{Name: "l", Rate: weir.Rate{Units: 2, Period: time.Hour}}
	for _, want := range []bool{true, true, false} {
		d, err := lim.Take(t.Context(), l.For("k"))
		if err != nil || d.Allowed != want {
			t.Fatalf("allowed=%t, want %t: %v", d.Allowed, want, err)
		}
	}
}

// TestACLUser has the least rights that a Store needs.
func TestACLUser(t *testing.T) {
	s := startRedis(t)
	do(t, s.client(), "ACL", "SETUSER", "weir", "on", ">pass word", "~weir:*", "~"+t.Name()+"*", "+evalsha", "+eval", "+time", "+mget", "+set", "+del",
		"+pttl", "+pexpire", "+zadd", "+zrem", "+zmscore", "+zrangebyscore", "+zrevrangebyscore", "+zremrangebyscore", "+ping", "+hello")
	decides(t, strings.Replace(s.URL, "unix://", "unix://weir:pass%20word@", 1))
	wrong := open(t, strings.Replace(s.URL, "unix://", "unix://weir:wrong@", 1))
	if err := wrong.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("a wrong password: %v", err)
	}
}

func TestTLS(t *testing.T) {
	s := newServer(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"cert": {Type: "CERTIFICATE", Bytes: der}, "key": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(s.Dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	port := redistest.FreePort(t)
	s.Args = append(s.Args, "--tls-port", port, "--tls-cert-file", "cert", "--tls-key-file", "key", "--tls-auth-clients", "no")
	s.Start()
	decides(t, "rediss://127.0.0.1:"+port+"?skip_verify=true")
	if err := open(t, "rediss://127.0.0.1:"+port).Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate of nobody known: %v", err)
	}
}

// TestNotRedis asks who speaks something else.
func TestNotRedis(t *testing.T) {
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	if err := open(t, "redis://"+web.Listener.Addr().String()).Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "what answers there is not Redis") {
		t.Errorf("a web server: %v", err)
	}
}

// TestSentinelFailover has a Sentinel make a replica the master when the master dies: decisions go on there, and what was
// spent is known.
func TestSentinelFailover(t *testing.T) {
	master, replica := newServer(t), newServer(t)
	masterPort, replicaPort, sentinelPort := master.OnPort(), replica.OnPort(), redistest.FreePort(t)
	master.Start()
	replica.Args = append(replica.Args, "--replicaof", "127.0.0.1", masterPort, "--repl-diskless-sync-delay", "0")
	master.do("CONFIG", "SET", "repl-diskless-sync-delay", "0")
	replica.Start()
	for end := time.Now().Add(20 * time.Second); !strings.Contains(replica.do("INFO", "replication").(string), "master_link_status:up"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the replica does not come up")
		}
	}
	sentinel := newServer(t)
	conf := fmt.Sprintf("port %s\nbind 127.0.0.1\nunixsocket %s/redis.sock\nsentinel monitor main 127.0.0.1 %s 1\nsentinel down-after-milliseconds main 300\nsentinel failover-timeout main 2000\n",
		sentinelPort, sentinel.Dir, masterPort)
	if err := os.WriteFile(filepath.Join(sentinel.Dir, "sentinel.conf"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	sentinel.Args = []string{"sentinel.conf", "--sentinel"}
	sentinel.URL += "?cluster=false"
	sentinel.Start()
	for end := time.Now().Add(30 * time.Second); !strings.Contains(fmt.Sprint(sentinel.do("SENTINEL", "REPLICAS", "main")), replicaPort); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the sentinel does not find the replica")
		}
	}

	lim := weir.Limiter{Store: &redisstore.Store{Client: open(t, "redis://127.0.0.1:"+sentinelPort+"?master_set=main"), Timeout: 2 * time.Second}}
	l := &weir.Limit{Name: "l", Rate: weir.Rate{Units: 10, Period: time.Hour}}
	for range 4 {
		if _, err := lim.Take(t.Context(), l.For("k")); err != nil {
			t.Fatal(err)
		}
	}
	master.do("WAIT", "1", "5000")
	master.Kill()
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		d, err := lim.Peek(t.Context(), l.For("k"))
		if err == nil && strings.Contains(replica.do("ROLE").([]any)[0].(string), "master") {
			if left := d.Outcomes()[0].Remaining; left != 6 {
				t.Errorf("the new master has %d units left, want 6", left)
			}
			if d, err := lim.Take(t.Context(), l.For("k")); err == nil && d.Allowed {
				return
			}
		}
		if time.Now().After(end) {
			t.Fatalf("no decision after the failover: %v", err)
		}
	}
}

// TestCloseWhileConnecting: whoever waits for the first connection when it is made and closed at once is told so.
func TestCloseWhileConnecting(t *testing.T) {
	s := startRedis(t)
	for i := range 300 {
		c, err := redisstore.Open(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		var asking sync.WaitGroup
		for range 4 {
			asking.Go(func() { c.Ping(t.Context()) }) // an answer, or an error
		}
		for range i { // at another moment each time
			runtime.Gosched()
		}
		c.Close()
		asking.Wait()
		if err := c.Ping(t.Context()); err == nil {
			t.Fatal("a closed connection answers")
		}
	}
}
