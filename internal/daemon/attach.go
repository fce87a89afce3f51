package daemon

import "go.uber.org/zap"

// attach sets the kernel side to work, and tells what it cannot record here.
func (d *daemon) attach() error {
	if err := d.kernel.Attach(); err != nil {
		return err
	}
	for hook, why := range d.kernel.Unrecorded() {
		d.log.Info("not recorded on this kernel", zap.String("hook", hook), zap.Error(why))
	}
	return nil
}
