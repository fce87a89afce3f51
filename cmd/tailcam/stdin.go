package main

import (
	"fmt"
	"io"
)

// stdinName stands for standard input where a command reads a file.
const stdinName = "-"

// readStdin reads standard input to its end, of at most most bytes.
func (c *cli) readStdin(most int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(c.deps.stdin, most+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read standard input: %w", err)
	case int64(len(data)) > most:
		return nil, fmt.Errorf("standard input is larger than %d bytes", most)
	}
	return data, nil
}
