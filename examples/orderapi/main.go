// Orderapi is an order API that shows both halves of staying up. On the way in, weir's limits keep a flood off: see
// limits.go. On the way out, every call to inventory, payment and shipping has a timeout, retries, a circuit breaker and a
// fallback: see dependency.go.
//
//	go run ./examples/orderapi
//
// It needs nothing else: the three services it calls are fakes of its own, which can be told to fail (fakes.go). It
// prints what to try with curl.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/failsafe-go/failsafe-go/budget"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "orderapi:", err)
		os.Exit(1)
	}
}

// run is the program: it serves until ctx ends, and then finishes the orders that it has begun.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("orderapi", flag.ContinueOnError)
	flags.SetOutput(stderr)
	addr := flags.String("addr", "127.0.0.1:8080", "where the API listens")
	fakes := flags.String("fakes", "127.0.0.1:8081", "where the fake inventory, payment and shipping listen")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))

	services, err := net.Listen("tcp", *fakes)
	if err != nil {
		return err
	}
	behind := &http.Server{Handler: newFakes(), ReadHeaderTimeout: 5 * time.Second}
	go behind.Serve(services)
	defer behind.Close()

	api, err := net.Listen("tcp", *addr)
	if err != nil {
		return err
	}
	base := "http://" + services.Addr().String()
	handler, err := newAPI(base, defaultDefence(), defaultLimits(), log).Handler()
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second, // a client that sends its request byte by byte is cut off
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
	}
	fmt.Fprintf(stdout, welcome, "http://"+api.Addr().String(), base)

	ended := make(chan error, 1)
	go func() { ended <- server.Serve(api) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	// No new connections; requests that are being served have time to end. The fakes close after that.
	patience, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	return server.Shutdown(patience)
}

// newAPI is the API in front of the services at a base URL.
func newAPI(base string, d Defence, limits Limits, log *slog.Logger) *API {
	return &API{
		Shop: &Shop{
			Inventory: Guard("inventory", base+"/inventory", BackOrder, d, log),
			Payment:   Guard("payment", base+"/payment", PaymentPending, d, log),
			Shipping:  Guard("shipping", base+"/shipping", ToBeArranged, d, log),
		},
		Accounts: newAccounts(),
		Limits:   limits,
	}
}

// defaultDefence makes an order wait no longer than three seconds, whatever happens behind.
func defaultDefence() Defence {
	return Defence{
		Timeout:  250 * time.Millisecond,
		Tries:    3,
		Pause:    50 * time.Millisecond,
		Failures: 5,
		Rest:     10 * time.Second,
		Budget:   budget.New(), // retries are at most a fifth of the calls under way, but three are always allowed
	}
}

// welcome is what to try: %[1]s is the API, %[2]s its services.
const welcome = `The order API is at %[1]s, the services it calls are at %[2]s. Try:

# Sign in, and order.
TOKEN=$(curl -s -d '{"name":"alice","password":"wonderland"}' %[1]s/login | cut -d'"' -f4)
order() { curl -si -H "Authorization: Bearer $TOKEN" -d '{"item":"kettle","quantity":1}' %[1]s/orders; }
order

# Make payment slow (or failing, or ok): three tries, then "payment pending". The second order opens the breaker: from
# then on the answer comes at once, and payment is left alone. Ten seconds later it is tried again.
curl -s -X PUT -d slow %[2]s/payment/mode
order; order; order
curl -s %[2]s/payment/mode

# Flood the shop with reads of the back office: they are refused, orders still go through.
OFFICE=$(curl -s -d '{"name":"office","password":"backstage"}' %[1]s/login | cut -d'"' -f4)
for i in $(seq 40); do curl -si -H "Authorization: Bearer $OFFICE" %[1]s/backoffice/orders | head -1; done | sort | uniq -c
order

# Guess passwords: the sixth guess is refused, and so is the right one from this address for a while.
for i in 1 2 3 4 5 6; do curl -si -d '{"name":"alice","password":"guess"}' %[1]s/login | head -1; done
`
