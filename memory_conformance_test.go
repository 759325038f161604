package weir_test

import (
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/storetest"
)

func TestMemoryIsAStore(t *testing.T) {
	storetest.Run(t, func(_ testing.TB, now func() time.Time) weir.Store { return &weir.Memory{Now: now} })
}
