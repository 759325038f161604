package traffic_test

import (
	"fmt"
	"time"

	"github.com/weir-go/weir/traffic"
)

// A rush: one an hour, then four an hour.
func ExampleProfile_Even() {
	rush := traffic.Profile{
		{At: 0, Rate: 1.0 / 3600},
		{At: 2 * time.Hour, Rate: 1.0 / 3600},
		{At: 2 * time.Hour, Rate: 4.0 / 3600},
		{At: 3 * time.Hour, Rate: 4.0 / 3600},
	}
	for at := range rush.Even() {
		fmt.Println(at.Round(time.Second))
	}
	// Output:
	// 0s
	// 1h0m0s
	// 2h0m0s
	// 2h15m0s
	// 2h30m0s
	// 2h45m0s
}

// Two kinds of clients, in the order of time.
func ExampleMerge() {
	people := traffic.Steady(2.0/3600, time.Hour)
	robots := traffic.Steady(4.0/3600, time.Hour)
	for class, at := range traffic.Merge(people.Even(), robots.Bursts(2)) {
		fmt.Println([]string{"people", "robots"}[class], at.Round(time.Second))
	}
	// Output:
	// people 0s
	// robots 0s
	// robots 0s
	// people 30m0s
	// robots 30m0s
	// robots 30m0s
}
