// The last rows of numbers, one typed array per column: the same memory after an hour as at the start.

export class RingBuffer {
  /**
   * @param {string[]} columns
   * @param {number} capacity
   */
  constructor(columns, capacity) {
    this.columns = columns;
    this.capacity = capacity;
    this.data = Object.fromEntries(columns.map((name) => [name, new Float64Array(capacity).fill(NaN)]));
    this.length = 0;
    this.first = 0;
  }

  push(row) {
    const at = (this.first + this.length) % this.capacity;
    this.columns.forEach((name, i) => { this.data[name][at] = row[i] ?? NaN; });
    if (this.length < this.capacity) this.length++;
    else this.first = (this.first + 1) % this.capacity;
  }

  // Write what has become known of row i later.
  put(i, name, value) {
    if (i >= 0 && i < this.length) this.data[name][(this.first + i) % this.capacity] = value ?? NaN;
  }

  // Value of a column in row i, the oldest being 0; NaN where there is none.
  at(i, name) {
    return i >= 0 && i < this.length ? this.data[name][(this.first + i) % this.capacity] : NaN;
  }

  // First row whose clock is not before t (rows are in order of time); length if there is none.
  from(t) {
    let low = 0;
    let high = this.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.at(middle, "clock_s") < t) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  // The last row that is not after t, -1 if there is none.
  upTo(t) {
    const next = this.from(t + 1e-6);
    return next - 1;
  }
}
