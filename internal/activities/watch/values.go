package watch

import (
	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/internal/accounts"
	"github.com/tailcam/tailcam/internal/activities/breakdown"
)

// Indexes of the values that are made up here, after those of the kernel side.
const (
	wall        = abi.ActivityValues
	unexplained = abi.ActivityValues + 1
)

// Values are those of an account, by enum activity_value, and the wall and unexplained time.
type Values [abi.ActivityValues + 2]uint64

func (v *Values) add(o *Values) {
	for i := range v {
		v[i] += o[i]
	}
}

// Of are the values of an account, of an activity whose thread has carried it for so long.
func Of(account *[abi.ActivityValues]uint64, took uint64) Values {
	var v Values
	copy(v[:], account[:])
	v[wall] = took
	v.settle()
	return v
}

// settle finds what is unexplained of the wall time.
func (v *Values) settle() {
	known := v[abi.ActivityCpuNs] + v[abi.ActivityRunnableNs] + v[abi.ActivityBlockedNs]
	v[unexplained] = v[wall] - min(known, v[wall])
}

// ByName returns those that are not 0, by their names.
func (v *Values) ByName() breakdown.Values {
	out := breakdown.Values{}
	for i, n := range v {
		switch {
		case n == 0:
		case i == wall:
			out[breakdown.Wall] = n
		case i == unexplained:
			out[breakdown.Unexplained] = n
		default:
			out[accounts.Name(i)] = n
		}
	}
	return out
}
