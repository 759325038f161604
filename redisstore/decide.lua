-- weir.Decide over cells that are kept in Redis: a port, line by line, of decide.go and cell.go. Every number is a
-- whole one below 2^53, which is where the two languages agree. '%d' writes all of its digits, as '%.0f' does at three
-- times the cost and tostring does not.
--
-- KEYS  the cells, and the holds of all keys of their limits
-- ARGV  the instant, or '-' for the server's own; grace in ms; the number of laws, and for each
--         kind (8·algorithm + 2·every + shadow), capacity, x, y, hold
--         where x, y are N, P of a bucket and Window, Tick of the others, and hold the key of the hold;
--       then for each transaction
--         op, instant (Refund: made; Hold: until), the number of charges, and for each
--           cell, law, cost, floor
-- reply one string: now, and for each transaction ok, at - now, and for each charge when - now, left, next - now:
--       0 if there is no next, and negative if it is the end of a hold
--
-- A cell is a string, "rest a b held" without the zeros at its end, or, of algorithms with a log, a sorted set: an entry's
-- score is its instant and its member has the cost; rest, a and held are members r, a, h with the score -1-value.

local TAKE, PEEK, REFUND, DEBIT, HOLD = 0, 1, 2, 3, 4 -- and RESET
local TOKEN, GCRA, LEAKY, FIXED, SLIDING = 0, 1, 2, 3, 4 -- and the two with a log
local NEVER, LATENESS = 9007199254740991, 60000000

local call, format, tonumber = redis.call, string.format, tonumber
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min

local now, grace = tonumber(ARGV[1]), tonumber(ARGV[2])
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local values = #KEYS > 0 and call('MGET', unpack(KEYS))

local function digits(n) return format('%d', n) end

-- number reads what a cell has remembered. What no cell can have is of somebody else, and nothing.
local function number(v)
  local n = tonumber(v)
  return n and n >= 0 and n <= NEVER and n or 0
end

-- Buckets.

-- They take c.a as it is where Go takes part(c), since settle has cut it down.

local function bucketCharge(law, c, at, cost)
  local rest, part = at, 0
  if c.rest > at then rest, part = c.rest, c.a end
  if cost > 2 * law.cap then cost = 2 * law.cap end
  local add = cost * law.p - part
  local whole = ceil(add / law.n)
  local most = at + 2 * law.full
  if rest + whole > most then
    c.rest, c.a = max(rest, most), 0
    return
  end
  c.rest, c.a = rest + whole, whole * law.n - add
end

local function bucketRefund(law, c, now, at, cost)
  local since = max(0, now - at)
  cost = min(cost, 2 * law.cap)
  if since >= ceil(cost * law.p / law.n) then return end
  local back = cost * law.p - since * law.n
  if back <= 0 then return end
  local x = back + c.a
  local whole = floor(x / law.n)
  c.rest = c.rest - whole
  c.a = x - whole * law.n
  if c.rest <= now then c.rest, c.a = 0, 0 end
end

local function capped(law, spent, cost)
  local most = 2 * law.cap
  if cost > most - spent then return max(most, spent) end
  return spent + cost
end

-- Sliding windows.

local function rolled(law, c, t)
  local w, most = law.w, 2 * law.cap
  local start = c.rest - 2 * w
  if t < start + w then return min(c.a, most), min(c.b, most), start end
  if t < start + 2 * w then return 0, min(c.a, most), start + w end
  return 0, 0, t - t % w
end

local function roll(law, c, t)
  local cur, prev, start = rolled(law, c, t)
  c.a, c.b, c.rest = cur, prev, start + 2 * law.w
end

local function slidingWhen(law, c, now, cost, room)
  if c.rest <= now then return now end
  local cur, prev, start = rolled(law, c, now)
  local ticks = law.w / law.tick
  if cur + cost <= room then
    if prev == 0 then return now end
    local gone = ticks - floor((room - cur - cost) * ticks / prev)
    if gone <= 0 then return now end
    return max(now, start + gone * law.tick)
  end
  local gone = ticks - floor((room - cost) * ticks / cur)
  return max(now, start + law.w + gone * law.tick)
end

-- Logs. Where Go keeps expired entries until the next charge, so does the sorted set. A member is "id:cost"; ids
-- keep entries of the same instant in order, as there are when a clock was set back.

local function costOf(member) return number(string.match(member, ':(%d+)')) end

local function idOf(member) return string.match(member, '^%d+') or '' end

local function logAdd(c, at, id, cost)
  local member = format('%s:%d', id, cost)
  while call('ZADD', c.key, 'NX', digits(at), member) == 0 do member = member .. '+' end
end

-- room fails if the server is full. It would not any more after a write that needs no room, as those below.
local function room(c) call('ZADD', c.key, 'XX', '0', '') end

-- live is the units that count at now, and whether there are expired entries.
local function live(law, c, now)
  if c.rest <= now then return 0, true end
  local used = c.a
  local expired = call('ZRANGEBYSCORE', c.key, '0', digits(now - law.w))
  for i = 1, #expired do used = used - costOf(expired[i]) end
  return used, #expired > 0
end

local function logWhen(law, c, now, cost, room)
  local used = live(law, c, now)
  if used + cost <= room then return now end
  local from, offset, count = '(' .. digits(now - law.w), 0, 4
  if now < law.w then from = '0' end
  while true do
    local e = call('ZRANGEBYSCORE', c.key, from, '+inf', 'WITHSCORES', 'LIMIT', offset, count)
    for i = 1, #e, 2 do
      used = used - costOf(e[i])
      if used + cost <= room then return min(tonumber(e[i + 1]), c.clip) + law.w end
    end
    if #e < 2 * count then return NEVER end
    offset, count = offset + count, min(1024, count * 8)
  end
end

local function logCharge(law, c, at, cost)
  local used, expired = live(law, c, at)
  if expired then
    room(c)
    call('ZREMRANGEBYSCORE', c.key, '0', c.rest <= at and '+inf' or digits(at - law.w))
  end
  c.a = used
  cost = capped(law, used, cost) - used
  if cost == 0 then return end
  c.a = c.a + cost
  local this, id, last = digits(at), format('%016d', at), at
  local e = call('ZREVRANGEBYSCORE', c.key, '+inf', this, 'WITHSCORES', 'LIMIT', 0, 1)
  if e[1] then
    last = tonumber(e[2])
    if last > at then e = call('ZREVRANGEBYSCORE', c.key, this, this, 'LIMIT', 0, 1) end
    if e[1] then
      room(c)
      call('ZREM', c.key, e[1])
      id, cost = idOf(e[1]), cost + costOf(e[1])
    end
  end
  logAdd(c, at, id, cost)
  c.rest = last + law.w
end

local function logRefund(law, c, at, cost)
  local this = digits(at)
  local e = call('ZRANGEBYSCORE', c.key, this, this, 'LIMIT', 0, 1)
  if not e[1] then return end
  local was = costOf(e[1])
  local back = min(cost, was)
  c.a = c.a - back
  call('ZREM', c.key, e[1])
  if was > back then
    logAdd(c, at, idOf(e[1]), was - back)
    return
  end
  local last = call('ZREVRANGEBYSCORE', c.key, '+inf', '0', 'WITHSCORES', 'LIMIT', 0, 1)
  if last[1] then
    c.rest = tonumber(last[2]) + law.w
  else
    c.rest, c.a = 0, 0
  end
end

-- The five functions of a law.

local function when(law, c, now, cost, keep)
  local room, alg = law.cap - keep, law.alg
  if cost > room then return NEVER end
  if alg <= GCRA then
    if c.rest <= now then return now end
    return max(now, c.rest - floor(((room - cost) * law.p + c.a) / law.n))
  elseif alg == LEAKY then
    return max(now, c.rest)
  elseif alg == FIXED then
    if c.rest <= now or c.a + cost <= room then return now end
    return c.rest
  elseif alg == SLIDING then
    return slidingWhen(law, c, now, cost, room)
  end
  return logWhen(law, c, now, cost, room)
end

local function charge(law, c, at, cost)
  local alg = law.alg
  if cost == 0 or law.cap == 0 then return end
  if alg <= LEAKY then
    bucketCharge(law, c, at, cost)
  elseif alg == FIXED then
    if at >= c.rest then
      c.rest = at - at % law.w + law.w
      c.a = 0
    end
    c.a = capped(law, c.a, cost)
  elseif alg == SLIDING then
    roll(law, c, at)
    c.a = capped(law, c.a, cost)
  else
    logCharge(law, c, at, cost)
  end
end

local function refund(law, c, now, at, cost)
  local alg = law.alg
  if cost == 0 or c.rest <= now then return end
  if alg <= LEAKY then
    bucketRefund(law, c, now, at, cost)
  elseif alg == FIXED then
    if at < c.rest and at >= c.rest - law.w then c.a = max(0, c.a - cost) end
  elseif alg == SLIDING then
    roll(law, c, now)
    local start = c.rest - 2 * law.w
    if at >= start then
      c.a = max(0, c.a - cost)
    elseif at >= start - law.w then
      c.b = max(0, c.b - cost)
    end
  else
    logRefund(law, c, at, cost)
  end
end

local function left(law, c, now, keep)
  local room, alg = law.cap - keep, law.alg
  if c.rest <= now then
    if alg == LEAKY then return min(1, room) end
    return room
  end
  if alg <= GCRA then
    local wait = c.rest - now
    if wait > law.full then return 0 end
    return max(0, floor((room * law.p - (wait * law.n - c.a)) / law.p))
  elseif alg == LEAKY then
    return 0
  elseif alg == FIXED then
    return max(0, room - c.a)
  elseif alg == SLIDING then
    local cur, prev, start = rolled(law, c, now)
    local ticks = law.w / law.tick
    local gone = floor((max(now, start) - start) / law.tick)
    return max(0, room - cur - ceil(prev * (ticks - gone) / ticks))
  end
  local used = live(law, c, now)
  return max(0, room - used)
end

local function settle(law, c, now, op)
  local alg, w = law.alg, law.w
  if alg == TOKEN and c.a >= law.n then c.a = law.n - 1 end
  if c.rest <= now + LATENESS then return end
  if alg <= LEAKY then
    if c.rest > now + LATENESS + 2 * law.full then c.rest, c.a = now + law.full, 0 end
  elseif alg == FIXED then
    if c.rest > now + LATENESS + w then c.rest, c.a = now - now % w + w, min(c.a, law.cap) end
  elseif alg == SLIDING then
    if c.rest > now + LATENESS + 2 * w then
      c.rest = now - now % w + 2 * w
      c.a, c.b = min(c.a, law.cap), min(c.b, law.cap)
    end
  elseif c.rest > now + LATENESS + w then
    c.rest = now + w
    if op == PEEK then
      c.clip = now
      return
    end
    local e = call('ZRANGEBYSCORE', c.key, '(' .. digits(now), '+inf')
    for i = 1, #e do call('ZADD', c.key, 'XX', digits(now), e[i]) end
  end
end

-- Cells.

local cells = {}

local function load(i, law)
  local v, alg, every = values[i], law.alg, law.every
  local c = { -- all its fields, so that the table need not grow
    key = KEYS[i], found = v and true, touched = false, every = every, log = false, clip = NEVER,
    rest = 0, a = 0, b = 0, held = 0, all = 0, h = 0, rest0 = 0, a0 = 0, b0 = 0, held0 = 0,
  }
  if every then
    c.held = number(v)
  else
    if values[law.hold] then c.all = number(values[law.hold]) end
    if alg > SLIDING then
      c.log = true
      local r = redis.pcall('ZMSCORE', c.key, 'r', 'a', 'h')
      if r.err then
        if not string.find(r.err, 'WRONGTYPE', 1, true) then error(r.err, 0) end
        call('DEL', c.key)
      elseif r[1] and r[2] and r[3] then
        c.found = true
        c.rest, c.a, c.held = number(-1 - r[1]), number(-1 - r[2]), number(-1 - r[3])
      end
    elseif v then
      local rest, a, b, held = v
      if not tonumber(v) then rest, a, b, held = string.match(v, '^(%d+) ?(%d*) ?(%d*) ?(%d*)$') end
      c.rest, c.a, c.b, c.held = number(rest), number(a), number(b), number(held)
    end
  end
  c.rest0, c.a0, c.b0, c.held0 = c.rest, c.a, c.b, c.held
  cells[i] = c
  return c
end

-- ttl is in ms how long to remember a cell: until its rest or its held, whichever is later.
local function ttl(c) return digits(max(1000, ceil((max(c.rest, c.held) - now) / 1000) + grace)) end

local function save(c)
  if c.rest == c.rest0 and c.a == c.a0 and c.b == c.b0 and c.held == c.held0 then
    -- A key without an end is not ours to keep: somebody took its end away.
    if c.found and c.touched and call('PTTL', c.key) == -1 then call('PEXPIRE', c.key, ttl(c)) end
  elseif c.rest == 0 and c.held == 0 then
    call('DEL', c.key)
  elseif c.every then
    call('SET', c.key, digits(c.held), 'PX', ttl(c))
  elseif c.log then
    call('ZADD', c.key, digits(-1 - c.rest), 'r', digits(-1 - c.a), 'a', digits(-1 - c.held), 'h')
    call('PEXPIRE', c.key, ttl(c))
  elseif c.held ~= 0 then
    call('SET', c.key, format('%d %d %d %d', c.rest, c.a, c.b, c.held), 'PX', ttl(c))
  elseif c.b ~= 0 then
    call('SET', c.key, format('%d %d %d', c.rest, c.a, c.b), 'PX', ttl(c))
  elseif c.a ~= 0 then
    call('SET', c.key, format('%d %d', c.rest, c.a), 'PX', ttl(c))
  else
    call('SET', c.key, digits(c.rest), 'PX', ttl(c))
  end
end

-- Decide.

local replies = { digits(now) }

-- ask is when a charge fits, together with the others that meet in its cell, but for shadows where it is none.
local function ask(charges, charge)
  local c, cost, keep = charge.c, charge.cost, charge.keep
  for j = 1, #charges do
    local o = charges[j]
    if o ~= charge and o.c == c and (charge.law.shadow or not o.law.shadow) then
      cost = cost + o.cost
      keep = max(keep, o.keep)
    end
  end
  local at = when(charge.law, c, now, cost, keep)
  if at < c.h then at = c.h end
  return at
end

local function decide(op, instant, charges)
  local ok, at = 1, now
  for i = 1, #charges do
    local it = charges[i]
    local law, c = it.law, it.c
    settle(law, c, now, op)
    if op <= PEEK then
      it.at = ask(charges, it)
      if it.at > now and not law.shadow then ok, at = 0, max(at, it.at) end
    elseif op == REFUND then
      refund(law, c, now, instant, it.cost)
    elseif op == DEBIT then
      charge(law, c, now, it.cost)
    elseif op == HOLD then
      if instant == 0 then c.h = 0 else c.h = max(c.h, instant) end
      c.held = c.h
    else
      c.rest, c.a, c.b, c.held, c.h = 0, 0, 0, 0, 0 -- no entry of a log counts at its rest
    end
  end
  if op == TAKE and ok == 1 then
    for i = 1, #charges do
      local it = charges[i]
      if it.at <= now then charge(it.law, it.c, now, it.cost) end -- a shadow limit may not admit
    end
  end
  replies[#replies + 1] = format('%d %d', ok, at - now)
  for i = 1, #charges do
    local it = charges[i]
    local law, c, keep = it.law, it.c, it.keep
    local rest, more = left(law, c, now, keep), now
    if c.h > now then
      rest, more = 0, now - (c.h - now)
    elseif rest < law.cap - keep and c.rest > now then
      more = when(law, c, now, rest + 1, keep)
    end
    replies[#replies + 1] = format('%d %d %d', it.at - now, rest, more - now)
  end
end

local laws, p = {}, 4
for i = 1, tonumber(ARGV[3]) do
  local kind, cap, x, y = tonumber(ARGV[p]), tonumber(ARGV[p + 1]), tonumber(ARGV[p + 2]), tonumber(ARGV[p + 3])
  laws[i] = {
    alg = floor(kind / 8), every = kind % 4 >= 2, shadow = kind % 2 == 1, cap = cap, hold = tonumber(ARGV[p + 4]),
    n = x, p = y, full = ceil(cap * y / x), w = x, tick = y,
  }
  p = p + 5
end

while ARGV[p] do
  local op, instant, n = tonumber(ARGV[p]), tonumber(ARGV[p + 1]), tonumber(ARGV[p + 2])
  p = p + 3
  local charges = {}
  for i = 1, n do
    local k, law = tonumber(ARGV[p]), laws[tonumber(ARGV[p + 1])]
    local c = cells[k] or load(k, law)
    if op == PEEK then -- which leaves no trace: a copy, one for all its charges
      local copy
      for j = 1, i - 1 do
        if charges[j].k == k then copy = charges[j].c end
      end
      c = copy or { key = c.key, rest = c.rest, a = c.a, b = c.b, held = c.held, all = c.all, clip = NEVER }
    else
      c.touched = true
    end
    c.h = c.held
    if op ~= HOLD and c.all > c.h then c.h = c.all end
    charges[i] = { k = k, law = law, c = c, cost = tonumber(ARGV[p + 2]), keep = tonumber(ARGV[p + 3]), at = now }
    p = p + 4
  end
  decide(op, instant, charges)
end
for _, c in pairs(cells) do save(c) end
return table.concat(replies, ' ')
