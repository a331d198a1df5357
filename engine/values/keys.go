package values

import (
	"context"
	"errors"
	"fmt"

	"github.com/gavel-mcp/gavel/engine/store"
)

// list returns the data keys of an instance. ErrNoKey.
func (k *Keyring) list(ctx context.Context, instance string) (rows []store.DataKey, err error) {
	for row, err := range k.keys.DataKeys(ctx, instance, 0) {
		if err != nil {
			return nil, err
		}
		if row.Instance != instance {
			break
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNoKey, instance)
	}
	return rows, nil
}

// forget lets nothing be sealed or opened with a key as it was.
func (k *Keyring) forget(instance string, number int) {
	k.opened.Remove(keyID{instance, 0})
	k.opened.Remove(keyID{instance, number})
	k.contexts.Remove(instance)
}

// Rotate gives an instance another data key for what follows, and returns its number; what is
// sealed already stays as it is. ErrNoKey, ErrDestroyed.
func (k *Keyring) Rotate(ctx context.Context, instance string) (number int, err error) {
	for {
		rows, err := k.list(ctx, instance)
		if err != nil {
			return 0, err
		}
		last := rows[len(rows)-1]
		if len(last.Wrapped) == 0 {
			return 0, ErrDestroyed
		}
		if err = k.add(ctx, instance, last.Number+1); !errors.Is(err, store.ErrConflict) {
			k.forget(instance, last.Number)
			return last.Number + 1, err
		}
	}
}

// Shred destroys all data keys of an instance, and returns how many. It is done again where they
// are destroyed already, in case a copy was left. ErrNoKey.
func (k *Keyring) Shred(ctx context.Context, instance string) (n int, err error) {
	for again := true; again; {
		rows, err := k.list(ctx, instance)
		if err != nil {
			return 0, err
		}
		n, again = len(rows), false
		for _, was := range rows {
			gone := was
			if gone.Wrapped = nil; gone.DestroyedAt.IsZero() {
				gone.DestroyedAt = recordTime()
				again = true // until nobody has added or wrapped one meanwhile
			}
			if err := k.keys.PutDataKey(ctx, gone, &was); err != nil && !errors.Is(err, store.ErrConflict) {
				return 0, err
			}
			k.forget(instance, was.Number)
		}
	}
	return n, nil
}

// Rewrap wraps a data key with the present secret, which was wrapped with this one or with an old
// one. It reports whether it had to. ErrUnreadable where it is of another one, ErrDamagedKey where the one
// that it is of does not unwrap it.
func (k *Keyring) Rewrap(ctx context.Context, was store.DataKey, old []byte) (bool, error) {
	if len(was.Wrapped) == 0 {
		return false, nil
	}
	plain, err := k.wrap.open(was)
	if err == nil {
		return false, nil
	}
	if old != nil && !errors.Is(err, ErrDamagedKey) {
		plain, err = newWrapper(old).open(was)
	}
	if err != nil {
		return false, err
	}
	row := was
	k.wrap.seal(plain, &row)
	k.forget(was.Instance, was.Number)
	return true, k.keys.PutDataKey(ctx, row, &was)
}
