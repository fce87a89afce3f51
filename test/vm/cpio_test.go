package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

func TestCPIO(t *testing.T) {
	var buf bytes.Buffer
	c := newCPIOWriter(&buf)
	c.device("/dev/console", 5, 1)
	c.file("/bin/deep/tool", 0o755, []byte("abcde"))
	c.dir("/bin/deep")
	c.file("/empty", 0o644, nil)
	assert.NilError(t, c.close())
	got, err := listCPIO(buf.Bytes())
	assert.NilError(t, err)
	want := `40755 dev ""
20600 dev/console "" 5:1
40755 bin ""
40755 bin/deep ""
100755 bin/deep/tool "abcde"
100644 empty ""
0 TRAILER!!! ""
`
	assert.Check(t, got == want, "got\n%swant\n%s", got, want)
}

// listCPIO reads an archive on its own terms: offsets by the format's rules.
func listCPIO(b []byte) (string, error) {
	var list strings.Builder
	for at := 0; at < len(b); {
		if len(b) < at+110 || string(b[at:at+6]) != "070701" {
			return "", fmt.Errorf("no header at %d", at)
		}
		var field [13]int
		for i := range field {
			if _, err := fmt.Sscanf(string(b[at+6+8*i:at+14+8*i]), "%08x", &field[i]); err != nil {
				return "", err
			}
		}
		size, nameSize := field[6], field[11]
		name := at + 110
		data := (name + nameSize + 3) &^ 3
		if data+size > len(b) || b[name+nameSize-1] != 0 {
			return "", errors.New("cut short")
		}
		fmt.Fprintf(&list, "%o %s %q", field[1], b[name:name+nameSize-1], b[data:data+size])
		if field[9] != 0 {
			fmt.Fprintf(&list, " %d:%d", field[9], field[10])
		}
		list.WriteByte('\n')
		at = (data + size + 3) &^ 3
	}
	return list.String(), nil
}

func TestCPIOReportsWriteErrors(t *testing.T) {
	c := newCPIOWriter(fullDisk{})
	c.file("/a", 0o644, []byte("x"))
	err := c.close()
	assert.Check(t, is.ErrorIs(err, errFull), "got %v, want %v", err, errFull)
}

var errFull = errors.New("disk full")

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }
