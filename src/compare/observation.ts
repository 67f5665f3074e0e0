// What is observed in a namespace, and under which names?

/** An object with its properties as text. */
export type Observed = Readonly<Record<string, string>>;

/** Objects by kind (`link`, `route`, …), then by name. */
export type Observation = Readonly<Record<string, Readonly<Record<string, Observed>>>>;
