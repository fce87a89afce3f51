// Package child starts processes that end with the program that has started them,
// however that ends.
package child

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// Start starts cmd, which the kernel kills should this program end first. It goes
// by the thread that starts it (prctl(2), PR_SET_PDEATHSIG), so one thread starts
// them all, and never ends.
func Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	failed := make(chan error)
	starter() <- func() { failed <- cmd.Start() }
	return <-failed
}

var starter = sync.OnceValue(func() chan<- func() {
	orders := make(chan func())
	go func() {
		runtime.LockOSThread()
		for do := range orders {
			do()
		}
	}()
	return orders
})
