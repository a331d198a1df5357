package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/validators/document"
)

// everydayLines are lines that agents run all day, in projects of Python, Go and JavaScript.
const everydayLines = `
git status --short
git diff HEAD~1 --stat
git log --oneline -10
git switch -c fix/rounding
git checkout main
git stash
git stash pop
git pull --rebase
git fetch --all
git merge origin/main
git rebase --continue
git cherry-pick 1a2b3c4
git revert --no-edit HEAD
git add -A && git commit -m "Round once"
git commit --amend --no-edit
git restore src/total.py
git checkout -- src/total.py
git reset --soft HEAD~1
git bisect start
git apply fix.diff
source .venv/bin/activate && pytest -q
. .venv/bin/activate
python3 -m pytest -x
pytest -q 2>&1 | tail -20
uv run pytest
pip install -e .
npm ci
npm test
npm run build
npx tsc --noEmit
npx prettier --write src
npx eslint --fix src
black .
ruff check --fix .
gofmt -w .
go build ./...
go test ./...
go mod tidy
cargo test
cargo fmt
make
make lint test
bash scripts/check.sh
./scripts/check.sh
rm -f *.log
rm -rf build dist
rm -rf build/*
find . -name '*.pyc' -delete
find . -name __pycache__ -exec rm -rf {} +
sed -i s/a/b/ src/total.py
sed -i s/a/b/ src/*.py
for f in src/*.py; do sed -i s/a/b/ "$f"; done
grep -rl total src | xargs sed -i s/total/sum/
cp -r src build/
mv src/a.py src/b.py
mkdir -p src/new && touch src/new/x.py
patch -p1 < fix.diff
tar xzf release.tgz
curl -s http://localhost:8000/health
docker compose up -d
kill %1
ls -la && cat README.md
export PYTHONPATH=src; python3 -c 'print(1)'
echo "$(date): done" >> notes.txt
cat <<'E' > src/new.py
print("push the button")
E
jq .version package.json
which python3 && python3 --version
`

// TestTemplatesLetEverydayLinesPass: a template affects few everyday lines, and explains each.
func TestTemplatesLetEverydayLinesPass(t *testing.T) {
	lists := map[string]string{"ours": everydayLines}
	if text, err := os.ReadFile("../../../../../shared/hooklines/everyday.txt"); err == nil {
		lists["others'"] = string(text)
	}
	p := newProject(t)
	for _, folder := range []string{"build/lib", "dist", "scripts", ".venv/bin"} {
		if err := os.MkdirAll(filepath.Join(p, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, template := range []string{"bugfix", "release", "careful-ops"} {
		text, err := os.ReadFile("../../../../cmd/gavel/internal/author/templates/" + template + "/gavel.yaml")
		if err != nil {
			t.Fatal(err)
		}
		root, err := document.Parse("gavel.yaml", text, document.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		gates, err := gate.ParseConfig(root.Get("gates"))
		if err != nil {
			t.Fatal(err)
		}
		for name, list := range lists {
			refused, asked := 0, 0
			for line := range strings.SplitSeq(strings.ReplaceAll(strings.TrimSpace(list), "\nprint(\"push the button\")\nE", "\x00"), "\n") {
				line = strings.ReplaceAll(line, "\x00", "\nprint(\"push the button\")\nE")
				for _, m := range gates.Match(useOf(p, line)) {
					if m.Unknown == "" {
						refused++
						t.Logf("%s: refused: %s: %s", template, line, m.Gate.Tool)
					} else {
						asked++
						t.Logf("%s: asked: %s: %s", template, line, m.Unknown)
					}
					break
				}
			}
			if refused > 3 || asked > 6 {
				t.Errorf("%s, %s: %d refused, %d asked", template, name, refused, asked)
			}
		}
	}
}
