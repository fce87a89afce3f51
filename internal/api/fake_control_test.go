package api

import (
	"errors"
	"fmt"
)

// What a fake does to its rules: it says what it was asked.

func (f *fake) SetThreshold(req *ThresholdRequest, by string) (ThresholdInfo, error) {
	f.took <- fmt.Sprintf("set %s %v %s %s %s by %s", req.Rule, req.When, req.Threshold, req.Timeout, req.For, by)
	return ThresholdInfo{ID: 3, Rule: req.Rule, When: req.When, ThresholdNS: 2e6, LeftNS: 5, By: by}, f.fail
}

func (f *fake) Thresholds() []ThresholdInfo { return nil }

func (f *fake) ClearThresholds(rule string, id int) ([]ThresholdInfo, error) {
	f.took <- fmt.Sprintf("clear %q %d", rule, id)
	return []ThresholdInfo{{ID: id, Rule: rule}}, f.fail
}

func (f *fake) ResetRatchet(rule string) error {
	f.took <- "ratchet " + rule
	return f.fail
}

func (f *fake) Pause(req *PauseRequest, by string) error {
	f.took <- fmt.Sprintf("pause %s %s by %s", req.Rule, req.For, by)
	return f.fail
}

func (f *fake) Resume(rule string) error {
	f.took <- "resume " + rule
	return errors.New("rule " + rule + " is not paused")
}

func (f *fake) Reload(check bool) *Reload {
	f.took <- fmt.Sprintf("reload check=%t", check)
	return &Reload{Check: check, OK: !check, Rules: []ReloadRule{{Rule: "wakeup", Outcome: ReloadChanged}}}
}
