/* The search worker: looks through the text of every section, each time something is asked.
 *
 * It takes the place of the theme's worker and speaks its messages. There is no index to be made
 * before the first answer: reading through ten megabytes takes less time than typing a letter
 * (ADR 0018). A page is found where all words of the query stand, anywhere on it; where there is
 * no such page, those with the most of them. "Words in quotes" are looked for as they stand.
 */
"use strict";
(() => {
  const SETUP = 0, READY = 1, QUERY = 2, RESULT = 3;
  const AROUND = 60, TEASER = 240, SECTIONS = 6;
  let pages = [];

  const CODED = { "&lt;": "<", "&gt;": ">", "&quot;": '"', "&#39;": "'", "&amp;": "&" };
  const decode = (text) =>
    text.includes("&") ? text.replace(/&(?:lt|gt|quot|#39|amp);/g, (code) => CODED[code]) : text;
  const encode = (text) =>
    text.replace(/[&<>"]/g, (char) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[char]);

  /* Lower case, of the same length: a place in it is the place in the text. */
  const fold = (text) => {
    const lower = text.toLowerCase();
    return lower.length === text.length ? lower : text;
  };

  const setup = (docs) => {
    const byPath = new Map();
    for (const doc of docs) {
      const path = doc.location.split("#")[0];
      const title = decode(doc.title), text = decode(doc.text);
      const section = { doc, title, text, inTitle: fold(title), inText: fold(text) };
      section.inTags = (doc.tags || []).map(fold);
      if (!byPath.has(path)) byPath.set(path, []);
      byPath.get(path).push(section);
    }
    pages = [...byPath.values()];
  };

  const WORD = /[\p{L}\p{N}_]/u;
  const startsWord = (text, at) => at === 0 || !WORD.test(text[at - 1]);

  /* Where `word` stands in `text`, at the beginning of a word if it does anywhere; or -1. */
  const find = (text, word) => {
    const first = text.indexOf(word);
    let at = first;
    for (let tries = 0; at > 0 && tries < 8; tries++) {
      if (startsWord(text, at)) return at;
      at = text.indexOf(word, at + 1);
    }
    return at === 0 ? 0 : first;
  };

  const weigh = (section, word) => {
    const inTitle = find(section.inTitle, word);
    let weight = 0;
    if (inTitle >= 0) {
      weight += startsWord(section.inTitle, inTitle) ? 30 : 8;
      if (section.inTitle.length === word.length) weight += 30;
    }
    if (section.inTags.some((tag) => tag.startsWith(word))) weight += 20;
    const inText = find(section.inText, word);
    if (inText >= 0) weight += startsWord(section.inText, inText) ? 3 : 1;
    return weight;
  };

  const marked = (text, folded, words, from, to) => {
    const spans = [];
    for (const word of words)
      for (let at = folded.indexOf(word, from); at >= 0 && at < to; at = folded.indexOf(word, at + word.length))
        spans.push([at, Math.min(at + word.length, to)]);
    spans.sort((a, b) => a[0] - b[0]);
    let out = "", done = from;
    for (const [start, end] of spans) {
      if (start < done) continue;
      out += `${encode(text.slice(done, start))}<mark>${encode(text.slice(start, end))}</mark>`;
      done = end;
    }
    return out + encode(text.slice(done, to));
  };

  const teaser = ({ text, inText }, words) => {
    const places = words.map((word) => find(inText, word)).filter((at) => at >= 0);
    let from = Math.max(0, Math.min(...places, text.length) - AROUND);
    if (!places.length) from = 0;
    if (from > 0) from = text.indexOf(" ", from) + 1 || from;
    const to = Math.min(text.length, from + TEASER);
    const cut = [from > 0 ? "… " : "", to < text.length ? " …" : ""];
    return text ? cut[0] + marked(text, inText, words, from, to) + cut[1] : "";
  };

  const item = (section, score, terms, words) => ({
    location: section.doc.location,
    title: marked(section.title, section.inTitle, words, 0, section.title.length),
    text: teaser(section, words),
    // A page's tags are on each of its sections; they are shown once.
    ...(section.doc.tags && !section.doc.location.includes("#") && { tags: section.doc.tags.map(encode) }),
    score,
    terms,
  });

  const wordsOf = (query) =>
    (query.match(/"[^"]+"?|[^\s"]+/g) || [])
      .map((word) => fold(word.replace(/^"|"$/g, "").trim()))
      .filter((word, at, all) => word && all.indexOf(word) === at);

  const search = (query, suggesting) => {
    const words = wordsOf(query);
    if (!words.length) return { items: [] };
    let most = 1, found = [];
    for (const sections of pages) {
      const has = words.map(() => false);
      const hits = [];
      for (const section of sections) {
        let score = 0;
        words.forEach((word, nth) => {
          const weight = weigh(section, word);
          if (weight) has[nth] = true;
          score += weight;
        });
        if (score) hits.push({ section, score });
      }
      const count = has.filter(Boolean).length;
      if (count < most) continue;
      if (count > most) {
        most = count;
        found = [];
      }
      found.push({ sections, hits, has, score: Math.max(...hits.map((hit) => hit.score)) });
    }
    const own = ({ hits, sections }) => hits[0].section === sections[0];
    found.sort((a, b) => b.score - a.score || own(b) - own(a));
    const items = found.map(({ sections, hits, has }) => {
      const terms = Object.fromEntries(words.map((word, nth) => [word, has[nth]]));
      const best = hits.sort((a, b) => b.score - a.score).slice(0, SECTIONS);
      const group = best.map(({ section, score }) => item(section, score, terms, words));
      if (!best.some(({ section }) => section === sections[0]))
        group.push(item(sections[0], 0, {}, []));
      return group;
    });
    return { items, ...(suggesting && { suggest: suggestion(found, words[words.length - 1]) }) };
  };

  const suggestion = (found, word) => {
    for (const { hits } of found.slice(0, 20))
      for (const { section } of hits) {
        const at = find(section.inTitle, word);
        if (at >= 0 && startsWord(section.inTitle, at))
          return [section.inTitle.slice(at).match(/^[\p{L}\p{N}_-]*/u)[0]];
      }
    return [];
  };

  let suggesting = false;
  addEventListener("message", ({ data: message }) => {
    if (message.type === SETUP) {
      setup(message.data.docs);
      suggesting = Boolean(message.data.options && message.data.options.suggest);
      postMessage({ type: READY });
    } else if (message.type === QUERY) {
      postMessage({ type: RESULT, data: search(message.data, suggesting) });
    }
  });
})();
