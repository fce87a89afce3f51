package accounts

// Name is that of a value by enum activity_value: the same in C, Go, Python and JSON.
func Name(index int) string { return values[index].Name }
