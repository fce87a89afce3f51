package trace

// Fields returns the names of an event's fields in CTF, as LTTng has them;
// nil for a type that is none.
func (t Type) Fields() []string {
	c := classOf(t)
	if c == nil {
		return nil
	}
	names := make([]string, len(c.fields))
	for i, f := range c.fields {
		names[i] = f.name
	}
	return names
}
