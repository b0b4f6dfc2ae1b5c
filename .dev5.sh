. ./.dev.sh
t() { echo "=== $1 ($(date +%T))"; shift; timeout "$@" 2>&1 | tail -${LINES_:-25}; }
P=$(dirname $(command -v python3)):/usr/bin:/bin
mkdir -p $OUT
LINES_=30 t large 75 env PATH=$P python3 -m fuzz run gemm softmax silu --device cuda:0 --case-memory 700 --backend torch --backend cuda --cases 160 --jobs 3 --seed 3 --corpus /tmp/cl
env PATH=$P timeout 110 python3 scripts/bench/clean --device cuda:0 --jobs 14 --budget 55 --after 6 --seed 6 --backend torch --backend cuda > $OUT/one.txt 2>&1
echo "=== one GPU ($(date +%T))"; grep -E "judged/s|^clean|^[0-9]+\. |out\[|processes" $OUT/one.txt | cut -c1-170 | tail -40
env PATH=$P timeout 110 python3 scripts/bench/clean --device cuda:all --jobs 28 --budget 60 --after 3 --seed 7 --backend cuda > $OUT/two.txt 2>&1
echo "=== two GPUs ($(date +%T))"; grep -E "judged/s|^clean|^[0-9]+\. |out\[|processes" $OUT/two.txt | cut -c1-170 | tail -20
LINES_=40 t device_judge 60 python3 scripts/bench/device_judge
LINES_=12 t recover 40 python3 scripts/bench/recover --device cuda --budget 6
LINES_=60 t planted 100 python3 scripts/bench/planted_cuda --device cuda --jobs 14 --limit 20 --budget 85
echo DONE $(date +%T)
