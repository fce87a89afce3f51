package kernel

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// PresentCPUs is how many CPUs have a ring of plain memory: those that there
// are, though some may be offline, and those with numbers in between.
func PresentCPUs() (int, error) {
	n, err := highestCPU("present")
	return n + 1, err
}

// highestCPU is the highest number of a CPU that is "online", or "present": it may be offline.
func highestCPU(which string) (int, error) {
	path := "/sys/devices/system/cpu/" + which
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("count CPUs: %w", err)
	}
	list := strings.TrimSpace(string(b)) // such as 0-3,8-11
	n, err := strconv.Atoi(list[strings.LastIndexAny(list, ",-")+1:])
	if err != nil {
		return 0, fmt.Errorf("count CPUs: %s holds %q", path, list)
	}
	return n, nil
}
