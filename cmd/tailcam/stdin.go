package main

import (
	"bufio"
	"bytes"
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

// packMagic begins what zstd has compressed, such as a pack.
var packMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}

// stdinIsPack reports whether standard input begins as a packed snapshot does.
func (c *cli) stdinIsPack() bool {
	in := bufio.NewReader(c.deps.stdin)
	c.deps.stdin = in
	begin, _ := in.Peek(len(packMagic)) // an error comes again
	return bytes.Equal(begin, packMagic)
}
