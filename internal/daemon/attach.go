package daemon

import "go.uber.org/zap"

// attach attaches the kernel side and logs what cannot be recorded on this kernel.
func (d *daemon) attach() error {
	if err := d.kernel.Attach(); err != nil {
		return err
	}
	for hook, why := range d.kernel.Unrecorded() {
		d.log.Info("not recorded on this kernel", zap.String("hook", hook), zap.Error(why))
	}
	return nil
}
