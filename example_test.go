package weir_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-go/weir"
)

// A request is decided over all its limits at once: none is charged unless all admit.
func Example() {
	var lim weir.Limiter
	global := &weir.Limit{Name: "global", Rate: weir.Rate{Units: 1000, Period: time.Hour}}
	client := &weir.Limit{Name: "client", Rate: weir.Rate{Units: 2, Period: time.Hour}}

	for _, who := range []string{"ann", "ann", "ann", "bob"} {
		d, err := lim.Take(context.Background(), global.For(""), client.For(who))
		if err != nil {
			fmt.Println(err)
			continue
		}
		out := d.Outcomes()
		fmt.Println(who, d.Allowed, "global has", out[0].Remaining, "retry in", d.RetryAfter.Round(time.Minute))
	}
	// Output:
	// ann true global has 999 retry in 0s
	// ann true global has 998 retry in 0s
	// ann false global has 998 retry in 30m0s
	// bob true global has 997 retry in 0s
}

// Headroom keeps units for what matters: back-office reads stop first, then ordinary requests, then orders.
func ExampleLimit_headroom() {
	var lim weir.Limiter
	shop := &weir.Limit{Name: "shop", Rate: weir.Rate{Units: 100, Period: time.Hour}, Headroom: 20}

	admitted := map[weir.Priority]int{}
	for range 100 {
		for _, p := range []weir.Priority{weir.Low, weir.Normal, weir.High} {
			if d, _ := lim.Take(context.Background(), shop.For("").AtPriority(p)); d.Allowed {
				admitted[p]++
			}
		}
	}
	fmt.Println(admitted[weir.Low], admitted[weir.Normal], admitted[weir.High])
	// Output: 20 30 50
}

// The true cost of some work is known only afterwards: charge an estimate before, settle after.
func ExampleLimiter_Debit() {
	ctx := context.Background()
	var lim weir.Limiter
	tokens := &weir.Limit{Name: "tokens", Rate: weir.Rate{Units: 1000, Period: time.Hour}}

	d, _ := lim.Take(ctx, tokens.For("ann").Costing(300))
	used := int64(420)
	if over := used - 300; over > 0 {
		_ = lim.Debit(ctx, tokens.For("ann").Costing(over))
	} else {
		_ = lim.Refund(ctx, d.At, tokens.For("ann").Costing(-over))
	}
	d, _ = lim.Peek(ctx, tokens.For("ann"))
	fmt.Println(d.Outcomes()[0].Remaining)
	// Output: 580
}

// Half-way through an incident an operator stops one client, and lets it go again.
func ExampleLimiter_Hold() {
	ctx := context.Background()
	var lim weir.Limiter
	client := &weir.Limit{Name: "client", Rate: weir.Rate{Units: 100, Period: time.Minute}}

	_ = lim.Hold(ctx, time.Now().Add(time.Hour), client.For("mallory"))
	d, _ := lim.Take(ctx, client.For("mallory"))
	fmt.Println(d.Allowed, d.RetryAfter.Round(time.Minute))

	_ = lim.Hold(ctx, time.Time{}, client.For("mallory"))
	d, _ = lim.Take(ctx, client.For("mallory"))
	fmt.Println(d.Allowed)
	// Output:
	// false 1h0m0s
	// true
}

// A Store in twenty lines: any place that can load cells, decide and save them at once will do. See
// the Store interface.
func ExampleDecide() {
	cells := map[string]weir.Cell{}
	limit := &weir.Limit{Name: "x", Rate: weir.Rate{Units: 3, Period: time.Hour}}
	law, _ := limit.Law()
	apply := func(tx *weir.Tx, now weir.Instant) {
		loaded := make([]weir.Cell, len(tx.Charges))
		for i, c := range tx.Charges {
			loaded[i] = cells[c.Limit.Name+"/"+c.Key]
		}
		weir.Decide(tx, loaded, now)
		for i, c := range tx.Charges {
			if c.Cell == i {
				cells[c.Limit.Name+"/"+c.Key] = loaded[i]
			}
		}
	}
	now := weir.InstantOf(time.Now())
	for range 4 {
		tx := weir.Tx{Op: weir.Take, Charges: []weir.TxCharge{{Charge: limit.For("k"), Law: law}}}
		apply(&tx, now)
		fmt.Print(tx.OK, " ", tx.Charges[0].Left, "; ")
	}
	// Output: true 2; true 1; true 0; false 0;
}
