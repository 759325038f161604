package storetest_test

import (
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/storetest"
)

func TestMemory(t *testing.T) {
	storetest.Run(t, func(t testing.TB, now func() time.Time) weir.Store { return &weir.Memory{Now: now} })
}
