package api

import (
	"fmt"
	"strconv"
	"strings"
)

// cursor is a place in a daemon's stream of outliers and of complete snapshots: how many of
// each came before. The zero cursor is before all of them.
type cursor struct {
	run                string // of the daemon; "": any
	outliers, verdicts uint64
}

// String is RUN.OUTLIERS.VERDICTS.
func (c cursor) String() string { return fmt.Sprintf("%s.%d.%d", c.run, c.outliers, c.verdicts) }

// parseCursor reads what String wrote; "" is the zero cursor.
func parseCursor(s string) (c cursor, err error) {
	if s == "" {
		return c, nil
	}
	f := strings.Split(s, ".")
	if len(f) == 3 && f[0] != "" {
		var err2 error
		c.run = f[0]
		c.outliers, err = strconv.ParseUint(f[1], 10, 64)
		c.verdicts, err2 = strconv.ParseUint(f[2], 10, 64)
		if err == nil && err2 == nil {
			return c, nil
		}
	}
	return cursor{}, fmt.Errorf("invalid cursor %.80q: must be one that events or wait printed", s)
}
