// Eight lessons: what to know, what to do, and how the page sees that it is done. Whatever policy is in the page, they can
// be solved: they ask for an experiment, not for a number.

/** @typedef {import("./journal.js").Journal} Journal */
/** @typedef {import("./journal.js").Stretch} Stretch */

/**
 * @typedef {object} Lesson
 * @property {string} id
 * @property {string} title
 * @property {string[]} text
 * @property {string} task
 * @property {(journal: Journal, network: any) => boolean} isSolved
 * @property {boolean} [memory] whether it is for networks that remember frames
 */

const hasPaint = (/** @type {Stretch} */ s) => s.edits.some((edit) => edit.startsWith("paint:"));
const watched = (/** @type {Stretch} */ s, /** @type {number} */ seconds) => !s.person && (s.seconds >= seconds || s.ended !== "");
const isForgetful = (/** @type {Stretch} */ s, /** @type {number} */ window) =>
  Array.from({ length: window - 1 }, (_, i) => `hide:${i + 1}`).every((edit) => s.edits.includes(edit));

/** @type {Lesson[]} */
export const LESSONS = [
  {
    id: "sees",
    title: "What it sees",
    text: [
      "The network does not see the road as you do. It gets a picture of 96 by 96 dots, many times a second, and nothing else: no map, no speedometer but the bars at the bottom, no rules.",
      "Nobody told it which part of the picture matters. It found that out while it learnt.",
    ],
    task: "Cover a part of its picture that it does not need: let it drive for five seconds with the cover on, without leaving the road.",
    isSolved: ({ stretches }) => stretches.some((s) => hasPaint(s) && !s.person && s.seconds >= 5 && !s.offRoad),
  },
  {
    id: "why",
    title: "Why it steers",
    text: [
      "A network gives no reasons. But you can find out what a decision hangs on: take one part away, and look whether the decision changes. That is how brains were first understood, too.",
      "“What does this hang on?” does it for you, part by part, at the moment that you hold.",
    ],
    task: "Hold the car in a bend, while it steers by more than 0.15. Ask what that hangs on, and take away the strongest part.",
    isSolved: ({ asked, stretches }) =>
      asked !== null && Math.abs(asked.steering) > 0.15 && stretches.some((s) => s.edits.includes(asked.strongest)),
  },
  {
    id: "memory",
    title: "What memory is for",
    memory: true,
    text: [
      "Beside the newest picture it still has a few older ones. While everything is fine, it could nearly do without. Let the camera flicker, and it is another matter: in the dark, an old picture is better than none.",
    ],
    task: "Let at least 30 % of the pictures be black for eight seconds, with the memory on. Then drive the same road with the same flicker, and with all older frames hidden. Compare how far it comes.",
    isSolved: ({ stretches }, network) => {
      const flickering = stretches.filter((s) => s.trouble.flicker >= 0.3 && watched(s, 8));
      const [without, having] = [true, false].map((forgetful) => flickering.filter((s) => isForgetful(s, network.window) === forgetful));
      return without.some((s) => having.some((other) => other.seed === s.seed && other.drawn === s.drawn));
    },
  },
  {
    id: "grass",
    title: "Off the road",
    text: [
      "On grass the tyres hold a little more than half. Who brakes or steers hard there slides. The network was taught by drives that sometimes went wrong, so it may know a bit about coming back.",
    ],
    task: "Blow the car off the road with gusts, all four wheels on the grass, until it has come back for two seconds. If it cannot do it alone, take the wheel and help.",
    isSolved: ({ stretches }) => stretches.some((s) => s.backSeconds >= 2),
  },
  {
    id: "imitation",
    title: "What imitation cannot teach",
    text: [
      "The network learnt by imitation: it saw a good driver and did the same. A good driver hardly ever stands the wrong way round on the road. So hardly anybody could show it what to do then.",
    ],
    task: "Take the wheel, turn the car until it points against the road, let go, and watch what the network makes of it for five seconds.",
    isSolved: ({ stretches }) => stretches.some((s) => s.reversed && watched(s, 5)),
  },
  {
    id: "delay",
    title: "Late is worse than blurred",
    text: [
      "Noise takes something away from every picture; delay takes nothing, and shows the past. At 300 km/h a car goes a metre in 12 milliseconds.",
    ],
    task: "Find a delay with which it leaves the road, and a smaller one with which it stays on it for eight seconds.",
    isSolved: ({ stretches }) => {
      const late = stretches.filter((s) => !s.person && s.trouble.delay > 0 && s.offRoad);
      const fine = stretches.filter((s) => watched(s, 8) && s.trouble.delay > 0 && !s.offRoad);
      return late.some((bad) => fine.some((good) => good.trouble.delay < bad.trouble.delay));
    },
  },
  {
    id: "road",
    title: "A road unlike all others",
    text: [
      "All roads that it has ever seen were made by one recipe: about a kilometre long, wound around the middle of the field, driven the same way round. Can it do more than it was taught?",
    ],
    task: "Draw a road of your own on the map, and let it drive at least half of it.",
    isSolved: ({ stretches }) => stretches.some((s) => s.drawn && !s.person && s.progress >= 0.5),
  },
  {
    id: "beat",
    title: "Beat it",
    text: [
      "Now you. The network decides many times a second and is never tired; you understand what a road is. You may race it as it is, or take something away from it first: both count, and the link says which.",
    ],
    task: "Win a race: be home first, or come farther than it does.",
    isSolved: ({ stretches }) => stretches.some((s) => s.racing && s.person && s.won),
  },
];

// The lessons for a network.
/** @param {any} network */
export const lessonsFor = (network) => LESSONS.filter(({ memory }) => !memory || network.window > 1);
