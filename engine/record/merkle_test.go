package record_test

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/engine/record"
)

// The leaves and roots are from the published RFC 6962 tests of Certificate Transparency.
func TestTreeIsThatOfRFC6962(t *testing.T) {
	leaves := []string{"", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"}
	roots := []string{
		"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		"6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
		"fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
		"aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
		"d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
		"4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
		"76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
		"ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
		"5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
	}
	var tree record.Tree
	for i, want := range roots {
		if root := tree.Root(); hex.EncodeToString(root[:]) != want {
			t.Errorf("%d leaves: %x, want %s", i, root, want)
		}
		if i < len(leaves) {
			data, err := hex.DecodeString(leaves[i])
			if err != nil {
				t.Fatal(err)
			}
			tree.Append(data)
		}
	}
}

// slowRoot implements the definition in RFC 6962, section 2.1, literally.
func slowRoot(leaves [][]byte) record.TreeHash {
	switch len(leaves) {
	case 0:
		return sha256.Sum256(nil)
	case 1:
		return sha256.Sum256(append([]byte{0}, leaves[0]...))
	}
	k := 1
	for 2*k < len(leaves) {
		k *= 2
	}
	left, right := slowRoot(leaves[:k]), slowRoot(leaves[k:])
	return sha256.Sum256(append(append([]byte{1}, left[:]...), right[:]...))
}

func TestTreeResumesFromPeaks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		leaves := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 8), 0, 70).Draw(t, "leaves")
		cut := rapid.IntRange(0, len(leaves)).Draw(t, "cut")
		var tree record.Tree
		for i, leaf := range leaves {
			if i == cut {
				again, err := record.NewTree(tree.Size(), tree.Peaks())
				if err != nil {
					t.Fatal(err)
				}
				tree = again
			}
			tree.Append(leaf)
		}
		if tree.Size() != int64(len(leaves)) || tree.Root() != slowRoot(leaves) {
			t.Fatalf("%d leaves: another root than the definition's", len(leaves))
		}
		if _, err := record.NewTree(tree.Size()+1, tree.Peaks()); err == nil && tree.Size()&1 == 0 {
			t.Fatal("peaks of another size were taken")
		}
	})
}

func TestCloneGrowsApart(t *testing.T) {
	var a record.Tree
	for range 5 {
		a.Append([]byte("a"))
	}
	root := a.Root()
	b := a.Clone()
	b.Append([]byte("b"))
	b.Append([]byte("b"))
	if a.Size() != 5 || a.Root() != root || b.Root() == root {
		t.Error("a clone shares what grows")
	}
}
