package daemon

import (
	"errors"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/internal/activities"
	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/contexts"
	"github.com/tailcam/tailcam/rules"
)

// TestActivitiesFailed: where activities are enabled and could not be loaded, everybody who asks
// is told why.
func TestActivitiesFailed(t *testing.T) {
	d := &daemon{contexts: contexts.New(&contexts.Options{})}
	d.noActivities = api.ActivitiesFailed(errors.New("load: no BTF"))
	const why = "activities are enabled, but the daemon could not begin with them: load: no BTF"
	_, err := d.OpenActivities(&activities.Opening{})
	assert.Check(t, is.Error(err, why))
	_, err = d.Activities(true)
	assert.Check(t, is.Error(err, why))
	assert.Check(t, is.Error(d.activityError(&rules.Rule{Track: rules.Activity}), why))
	assert.Check(t, is.DeepEqual(d.activitiesStatus(), &api.ActivitiesStatus{Error: why}))

	d = &daemon{}
	_, err = d.OpenActivities(&activities.Opening{})
	assert.Check(t, is.ErrorIs(err, api.ErrActivitiesDisabled))
	assert.Check(t, d.activitiesStatus() == nil)
}
