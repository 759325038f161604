package weir

type lines struct{}

func (l *lines) wake(c []Charge) {}
