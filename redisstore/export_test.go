package redisstore

// DecideText is the script.
var DecideText = decideText

// UseScript makes s run another script.
func UseScript(s *Store, text string) { s.script = newScript(text) }
