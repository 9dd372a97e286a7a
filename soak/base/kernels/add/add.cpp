int add(int x, int y) { return x + y; }
