package linux

import (
	"fmt"
	"os"
	"path/filepath"
)

// Disk writes the kernel's own dev_t of a disk as sysfs does: 8:16.
func Disk(dev uint32) string { return fmt.Sprintf("%d:%d", dev>>20, dev&(1<<20-1)) }

// DiskName is the kernel's name of a disk, such as sda; "" if it is gone.
func DiskName(dev uint32) string {
	link, err := os.Readlink("/sys/dev/block/" + Disk(dev))
	if err != nil {
		return ""
	}
	return filepath.Base(link)
}
