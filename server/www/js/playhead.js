// The clock of a replay: plays at a speed, pauses, seeks, steps; tells every new time to one listener.

export class Playhead {
  constructor(onTime) {
    this.onTime = onTime;
    this.time = 0;
    this.end = 0;
    this.speed = 1;
    this.playing = false;
    // Whether it came to the end by playing, and has not been moved since.
    this.ended = false;
    this.last = NaN;
    this.frame = (now) => this.advance(now);
  }

  load(start, end) {
    this.start = start;
    this.end = end;
    this.seek(start);
  }

  play(on) {
    if (on === this.playing) return;
    if (on && this.time >= this.end - 1e-6) this.time = this.start;
    this.playing = on;
    this.ended = false;
    this.last = NaN;
    if (on) requestAnimationFrame(this.frame);
    this.onTime();
  }

  seek(time) {
    this.ended = false;
    this.time = Math.max(this.start, Math.min(this.end, time));
    this.onTime();
  }

  advance(now) {
    if (!this.playing) return;
    // A page that was asleep goes on where it stopped.
    if (!Number.isNaN(this.last)) this.time += Math.min(0.25, (now - this.last) / 1000) * this.speed;
    this.last = now;
    if (this.time >= this.end) {
      this.time = this.end;
      this.playing = false;
      this.ended = true;
    }
    this.onTime();
    if (this.playing) requestAnimationFrame(this.frame);
  }
}
