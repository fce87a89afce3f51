package field

import (
	"errors"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/tracker/usdt"
)

// Call is what a probe in a program carries: at the begin of a function the
// registers of its arguments, at its end that of its value.
func Call(hook string, returns, begins bool) (*Source, error) {
	s, err := Registers(nil, hook, nil, returns, begins)
	if err != nil {
		return nil, err
	}
	s.User = true
	return s, nil
}

// Static is what a usdt probe carries: its arguments by number. One that cannot
// be read is there, but has no base.
func Static(hook string, args []usdt.Arg) *Source {
	s := &Source{Hook: hook, User: true}
	for _, a := range args {
		arg := Arg{Signed: a.Signed, Loaded: true, Trouble: a.Unknown}
		shift := 64 - 8*a.Size
		switch {
		case a.Unknown != "":
		case a.Constant != nil:
			arg.Fetch = abi.Fetch{Base: abi.FetchConstant, Constant: uint64(*a.Constant)}
		default:
			arg.Fetch = abi.Fetch{Base: abi.FetchRegister, Index: a.Register, Left: shift, Right: shift, Sign: sign(a.Signed)}
			if a.Memory {
				arg.Fetch.Loads, arg.Fetch.User, arg.Fetch.Bytes = 1, 1, a.Size
				arg.Fetch.Offset[0] = a.Disp
			}
		}
		s.Args = append(s.Args, arg)
	}
	return s
}

// trouble is why an argument cannot be read.
func (a *Arg) trouble() error {
	if a.Trouble == "" {
		return nil
	}
	return errors.New(a.Trouble)
}
