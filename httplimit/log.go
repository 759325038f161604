package httplimit

import (
	"hash/maphash"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/weir-go/weir"
)

const levelFailure = slog.LevelError

var logSeed = maphash.MakeSeed()

func errAttr(err error) slog.Attr { return slog.String("err", err.Error()) }

// log writes a line for each limit that refuses, or one for the error.
func (h *Handler) log(r *http.Request, d *weir.Decision, charges []weir.Charge, err error) {
	ctx := r.Context()
	if err != nil {
		level := levelFailure
		if (&Refusal{Err: err}).wrong() || ctx.Err() != nil {
			level = slog.LevelInfo // the client's doing, not the store's
		}
		h.Logger.LogAttrs(ctx, level, "request not decided", errAttr(err))
		return
	}
	for i, o := range d.Outcomes() {
		if !o.Refused() {
			continue
		}
		level, text := slog.LevelInfo, "request refused"
		if o.Limit.Shadow {
			level, text = slog.LevelDebug, "request would be refused"
		}
		if !h.Logger.Enabled(ctx, level) {
			continue
		}
		attrs := []slog.Attr{
			slog.String("limit", o.Limit.Name),
			slog.Bool("allowed", d.Allowed),
			slog.Duration("retry_after", o.After),
		}
		if i < len(charges) {
			attrs = append(attrs,
				slog.String("key", strconv.FormatUint(maphash.String(logSeed, charges[i].Key), 16)),
				slog.Int64("cost", charges[i].Cost))
		}
		h.Logger.LogAttrs(ctx, level, text, attrs...)
	}
}
