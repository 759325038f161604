package traffic

import "time"

// Event is one request, as a log tells of it or a [Scenario] foresees it. What is not known is zero.
type Event struct {
	At     time.Time     // when it arrived
	Client string        // its address, as the log has it
	User   string        // who signed in
	Method string        //
	Host   string        //
	Path   string        // with its query, as it was sent
	Status int           // of the answer
	Bytes  int64         // of the answer's body
	Took   time.Duration // until the answer
	Header []Field       // what is known of the request's header
	Class  string        // of a Scenario, by name
}

// Field is a line of a header. Its name is in canonical form.
type Field struct{ Name, Value string }
