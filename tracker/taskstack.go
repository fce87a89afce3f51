package tracker

// takeStack takes the kernel stack of a task that is still pending, on kernels
// whose tick cannot.
func (t *Tracker) takeStack(o *Outlier) {
	if o == nil || !o.Unstacked {
		return
	}
}
