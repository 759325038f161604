package redisstore_test

import (
	"strings"
	"testing"

	"github.com/weir-go/weir/redisstore"
)

// mutants are faults that a hand could make in the script. Each replaces text that is there once.
var mutants = []struct{ name, is, fault string }{
	{"floor for ceil", "local whole = ceil(add / law.n)", "local whole = floor(add / law.n)"},
	{"the part lost in a charge", "local add = cost * law.p - part", "local add = cost * law.p"},
	{"the part lost in when", "(room - cost) * law.p + c.a", "(room - cost) * law.p"},
	{"the part lost in left", "(wait * law.n - c.a)", "(wait * law.n)"},
	{"the part lost in a refund", "local x = back + c.a", "local x = back"},
	{"tostring", "local function digits(n) return format('%d', n) end", "local function digits(n) return tostring(n) end"},
	{"shortest format", "return format('%d', n)", "return format('%.14g', n)"},
	{"a debt without end", "if rest + whole > most then", "if false then"},
	{"a cost beyond the cap", "if cost > 2 * law.cap then cost = 2 * law.cap end\n  local add", "local add"},
	{"windows without a cap", "if cost > most - spent then", "if false then"},
	{"a refund of what has refilled", "local back = cost * law.p - since * law.n", "local back = cost * law.p"},
	{"a refund from the future", "local since = max(0, now - at)", "local since = now - at"},
	{"rest kept after a refund", "if c.rest <= now then c.rest, c.a = 0, 0 end", ""},
	{"a fixed window that starts now", "c.rest = at - at % law.w + law.w", "c.rest = at + law.w"},
	{"a window that is not rolled", "      c.a = 0\n", ""},
	{"a refund into another window", "if at < c.rest and at >= c.rest - law.w then", "if at < c.rest then"},
	{"a refund to the window before", "elseif at >= start - law.w then", "elseif false then"},
	{"windows swapped", "if t < start + 2 * w then return 0, min(c.a, most), start + w end", "if t < start + 2 * w then return 0, min(c.b, most), start + w end"},
	{"floor for ceil in a sliding window", "ceil(prev * (ticks - gone) / ticks)", "floor(prev * (ticks - gone) / ticks)"},
	{"ceil for floor in a sliding window", "local gone = ticks - floor((room - cur - cost) * ticks / prev)", "local gone = ticks - ceil((room - cur - cost) * ticks / prev)"},
	{"a sliding window that forgets the next", "return max(now, start + law.w + gone * law.tick)", "return max(now, start + gone * law.tick)"},
	{"an entry that counts at its end", "local expired = call('ZRANGEBYSCORE', c.key, '0', digits(now - law.w))", "local expired = call('ZRANGEBYSCORE', c.key, '0', '(' .. digits(now - law.w))"},
	{"entries never dropped", "if expired then\n", "if false then\n"},
	{"entries of one instant not merged", "room(c)\n      call('ZREM', c.key, e[1])\n      id, cost = idOf(e[1]), cost + costOf(e[1])", ""},
	{"an entry given back whole", "local back = min(cost, was)", "local back = was"},
	{"a late entry ends the log", "last = tonumber(e[2])", "last = at"},
	{"settling forgotten", "if c.rest <= now + LATENESS then return end", "if true then return end"},
	{"settling too early", "local NEVER, LATENESS = 9007199254740991, 60000000", "local NEVER, LATENESS = 9007199254740991, 6000000"},
	{"a floor lost", "local room, alg = law.cap - keep, law.alg\n  if cost > room then return NEVER end", "local room, alg = law.cap, law.alg\n  if cost > room then return NEVER end"},
	{"charges that meet asked apart", "if o ~= charge and o.c == c and", "if false and"},
	{"the floor of those that meet lost", "keep = max(keep, o.keep)", ""},
	{"the last refusal for the latest", "ok, at = 0, max(at, it.at)", "ok, at = 0, it.at"},
	{"a shadow that refuses", "if it.at > now and not law.shadow then", "if it.at > now then"},
	{"a shadow charged where it refuses", "if it.at <= now then charge", "if true then charge"},
	{"charged although refused", "if op == TAKE and ok == 1 then", "if op == TAKE then"},
	{"a peek that charges", "if op == TAKE and ok == 1 then", "if op <= PEEK and ok == 1 then"},
	{"a peek that saves", "if op == PEEK then -- which", "if false then -- which"},
	{"the part of another rate kept", "if alg == TOKEN and c.a >= law.n then c.a = law.n - 1 end", ""},
	{"a hold not asked", "if at < c.h then at = c.h end", ""},
	{"the earlier of two holds", "c.h = max(c.h, instant)", "c.h = instant"},
	{"a hold of the limit saved as the key's", "      c.held = c.h\n", "      c.held = max(c.h, c.all)\n"},
	{"a hold that looks like spending", "rest, more = 0, now - (c.h - now)", "rest, more = 0, c.h"},
	{"a hold of the limit not read", "if values[law.hold] then c.all = number(values[law.hold]) end", ""},
	{"a hold lost with the spending", "elseif c.rest == 0 and c.held == 0 then", "elseif c.rest == 0 then"},
	{"a reset that keeps the hold", "c.rest, c.a, c.b, c.held, c.h = 0, 0, 0, 0, 0", "c.rest, c.a, c.b = 0, 0, 0"},
	{"the window before not saved", "call('SET', c.key, format('%d %d %d', c.rest, c.a, c.b), 'PX', ttl(c))", "call('SET', c.key, format('%d %d', c.rest, c.a), 'PX', ttl(c))"},
	{"a change not seen", "c.rest == c.rest0 and c.a == c.a0 and", "c.rest == c.rest0 and"},
	{"next for the same units", "more = when(law, c, now, rest + 1, keep)", "more = when(law, c, now, rest, keep)"},
}

// TestFaultsInTheScriptAreCaught puts each fault into the script and looks for a history that shows it.
func TestFaultsInTheScriptAreCaught(t *testing.T) {
	t.Parallel()
	client := startRedis(t).client()
	most := 0
	for _, m := range mutants {
		if n := strings.Count(redisstore.DecideText, m.is); n != 1 {
			t.Errorf("%s: the script has %d times %q, want once", m.name, n, m.is)
			continue
		}
		text := strings.Replace(redisstore.DecideText, m.is, m.fault, 1)
		decisions, _, err := wild(client, *seed, max(*histories, 500), func(s *redisstore.Store) { redisstore.UseScript(s, text) })
		if err == nil {
			t.Errorf("%s: not seen in %d decisions", m.name, decisions)
		} else if !strings.Contains(err.Error(), "got now=") {
			t.Logf("%s: the script fails: %v", m.name, err)
		}
		t.Logf("%s: after %d decisions", m.name, decisions)
		most = max(most, decisions)
	}
	t.Logf("%d faults seen, the last after %d decisions", len(mutants), most)
}
