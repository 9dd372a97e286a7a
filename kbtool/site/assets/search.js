/* The search worker: looks through the text of every section, each time something is asked.
 *
 * searchbox.js asks it. There is no index to be made before the first answer: reading through ten
 * megabytes takes less time than typing a letter (ADR 0018). A page is found where all words of the
 * query stand anywhere on it; where there is none, those with the most of them. Function words are
 * left out. "Words in quotes" are looked for as they stand.
 *
 * Records come first, in the order of `kbtool search`: the build puts its index, KB_WORDS, ahead of
 * this file, and ranking() does what kbtool/runner/resemble.py does (ADR 0064).
 */
"use strict";
(() => {
  const SETUP = 0, READY = 1, QUERY = 2, RESULT = 3;
  const AROUND = 60, TEASER = 240, SECTIONS = 6;
  const FEW = 10; // a compound that fewer records have is looked for by its longer part as well
  const COMMON = 3; // a heading that more records have, as Evidence, tells none of them from another
  const ENOUGH = 0.5; // a record that has less of what was asked comes after pages with all words
  const LATER = /^(runs|sweeps|guide\/schema|tags)\//; // what programs wrote comes after what people did
  const RUN = /^runs\/[^/]+\/(.+)\.html$/;
  let records = [];
  let named = []; // the words of titles, those of the most records first
  let ranked = () => [];

  const CODED = { "&lt;": "<", "&gt;": ">", "&quot;": '"', "&#39;": "'", "&amp;": "&" };
  const decode = (text) =>
    text.includes("&") ? text.replace(/&(?:lt|gt|quot|#39|amp);/g, (code) => CODED[code]) : text;
  const encode = (text) =>
    text.replace(/[&<>"]/g, (char) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[char]);

  /* Zensical leaves tags of HTML in its index. */
  const plain = (text, between) =>
    text.includes("<") ? text.replace(/<[^>]*>/g, between).replace(/\s+/g, " ").trim() : text;

  /* Lower case, of the same length: a place in it is the place in the text. */
  const fold = (text) => {
    const lower = text.toLowerCase();
    return lower.length === text.length ? lower : text;
  };

  const NAME = /\p{L}[\p{L}\p{N}_-]{2,}/gu;

  /* What is left of the word that is being typed. */
  const restOf = (query) => {
    const [typed] = fold(query).match(/\p{L}[\p{L}\p{N}_-]+$/u) || [];
    const word = typed && named.find((one) => one.startsWith(typed));
    return word ? word.slice(typed.length) : "";
  };

  const setup = (docs) => {
    const byRecord = new Map(), having = new Map();
    for (const doc of docs) {
      const [record, anchor] = doc.location.split("#");
      const title = decode(plain(doc.title, "")), text = decode(plain(doc.text, " "));
      const section = { doc, title, text, inTitle: fold(title), inText: fold(text) };
      section.inTags = anchor ? [] : (doc.tags || []).map(fold); // each section has the page's
      if (!byRecord.has(record)) byRecord.set(record, []);
      byRecord.get(record).push(section);
      if (!having.has(section.inTitle)) having.set(section.inTitle, new Set());
      having.get(section.inTitle).add(record);
    }
    records = [...byRecord.values()];
    const counts = new Map();
    for (const sections of records)
      for (const word of new Set(sections.flatMap(({ inTitle }) => inTitle.match(NAME) || [])))
        counts.set(word, (counts.get(word) || 0) + 1);
    named = [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a) || a.length - b.length);
    if (typeof KB_WORDS !== "undefined") ranked = ranking(KB_WORDS);
    for (const [first, ...others] of records)
      for (const section of others) section.isCommon = having.get(section.inTitle).size > COMMON;
  };

  const WORD = /[\p{L}\p{N}_]/u;
  const startsWord = (text, at) => at === 0 || !WORD.test(text[at - 1]);

  /* Where `pattern` stands in `text` from a place on; or null. */
  const next = (text, pattern, from) => {
    pattern.lastIndex = from;
    return pattern.exec(text);
  };

  /* Where `pattern` stands in `text`, at the beginning of a word if it does anywhere; or -1. */
  const find = (text, pattern) => {
    const first = next(text, pattern, 0);
    for (let tries = 0, at = first; at && tries < 8; at = next(text, pattern, at.index + 1), tries++)
      if (startsWord(text, at.index)) return at.index;
    return first ? first.index : -1;
  };

  const weigh = (section, { word, pattern }) => {
    const inTitle = find(section.inTitle, pattern);
    let weight = 0;
    if (inTitle >= 0) {
      weight += section.isCommon ? 1 : startsWord(section.inTitle, inTitle) ? 30 : 8;
      if (section.inTitle.length === word.length && !section.isCommon) weight += 30;
    }
    if (section.inTags.some((tag) => tag.startsWith(word))) weight += 20;
    const inText = find(section.inText, pattern);
    if (inText >= 0) weight += startsWord(section.inText, inText) ? 3 : 1;
    return weight;
  };

  const marked = (text, folded, words, from, to) => {
    const spans = [];
    for (const { pattern } of words)
      for (let at = next(folded, pattern, from); at && at.index < to; at = next(folded, pattern, pattern.lastIndex))
        spans.push([at.index, Math.min(pattern.lastIndex, to)]);
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
    const places = words.map(({ pattern }) => find(inText, pattern)).filter((at) => at >= 0);
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
    ...(section.inTags.length && { tags: section.doc.tags.map(encode) }),
    score,
    terms,
  });

  const FUNCTION_WORDS = new Set(
    ("a an and are as at be been by can could did do does for from had has have how i if in into is it its my of on " +
      "or our should so than that the their them there these they this those to was we were what when where which " +
      "who why will with would you your").split(" "),
  );
  /* Words in quotes, a comparison with its spaces, or a word. */
  const TOKENS = /"[^"]+"?|[^\s"<>=≤≥]+(?:\s*[<>=≤≥]+\s*[^\s"<>=≤≥]+)*/g;

  /* A word to look for. What is compared with what counts, not by which sign: S>64 is in "S=64". */
  const wordOf = (token) => {
    const quoted = token.startsWith('"');
    const word = fold(quoted ? token.replace(/"/g, "").trim() : token.replace(/[?!,;:.]+$/, ""));
    const exact = word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
    const pattern = quoted ? exact : exact.replace(/\s*[<>=≤≥]+\s*/g, "\\s?[<>=≤≥]+\\s?");
    return { word, quoted, pattern: new RegExp(pattern, "g") };
  };

  const wordsOf = (query) => {
    const words = (query.match(TOKENS) || []).map(wordOf)
      .filter(({ word }, at, all) => word && all.findIndex((other) => other.word === word) === at);
    const telling = words.filter(({ word, quoted }) => quoted || !FUNCTION_WORDS.has(word));
    return telling.length ? telling : words;
  };

  /* The words of which a record has to have all or most; those that count besides, where they are.
     Of two that are joined, as latency-bound, one may be written where few records have both. */
  const asked = (query) => {
    const words = wordsOf(query), besides = [];
    const needed = words.map((whole) => {
      const parts = whole.word.split(/\s*[-<>=≤≥]+\s*/).filter(Boolean);
      if (whole.quoted || parts.length !== 2) return whole;
      const having = records.filter((sections) => sections.some((section) => weigh(section, whole)));
      if (having.length >= FEW) return whole;
      besides.push(whole);
      return wordOf(parts[1].length > parts[0].length ? parts[1] : parts[0]);
    });
    return { needed, besides };
  };

  /* Of two that are as good, what says less else first: a symptom before a listing of many. */
  const better = (a, b) => b.score - a.score || a.section.text.length - b.section.text.length;

  /* Okapi BM25 with stems, synonyms and misspelt words, as Words.find and Index.ranked have it. */
  const ranking = (kb) => {
    const WORDS = /[a-z][a-z0-9]*(?:[_.+-][a-z0-9]+)*\+*|(?<!\d)\d+[a-z]+[\p{L}\p{N}_]*/gu;
    const HUMPED = /\b[A-Za-z]+[a-z0-9][A-Z][A-Za-z0-9]*|\b[A-Z]{2,}[a-z][A-Za-z0-9]*/g;
    const HUMPS = /(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])/g;
    const NUMBERS = /(?<![a-z0-9])\d{1,9}(?![a-z0-9])/g;
    const COMPARED = /(?<![a-z0-9])([a-z][a-z0-9_]*)\s?[<>=≤≥]+\s?(\d{1,9})(?![a-z0-9])/g;
    const stop = new Set(kb.stop);
    const isAlpha = (word) => /^\p{L}+$/u.test(word);
    const stemOf = (word) => {
      if (isAlpha(word))
        for (const ending of kb.endings)
          if (word.endsWith(ending) && word.length - ending.length >= 4) return word.slice(0, -ending.length);
      return word;
    };
    const stemsOf = (text) => {
      const parts = (text.match(HUMPED) || []).map((name) => name.replace(HUMPS, " ")).join(" ");
      const stems = new Set();
      for (const word of `${text} ${parts}`.toLowerCase().match(WORDS) || [])
        if (word.length <= kb.longest)
          for (const part of new Set([word, ...word.split(/[_.-]/)]))
            if (part.length > 1 && !stop.has(part) && !/^\d+$/.test(part)) stems.add(stemOf(part));
      const small = text.toLowerCase();
      for (const number of small.match(NUMBERS) || []) stems.add(`#${number}`);
      for (const [, name, number] of small.matchAll(COMPARED)) stems.add(`#${name}=${number}`);
      return [...stems];
    };
    const nameOf = (text) => (text.toLowerCase().match(/[a-z0-9]+/g) || []).join(" ");

    const where = new Map(kb.words.map((word) => [word, []]));
    const sizes = kb.records.map(([, , , counts], place) => {
      let size = 0;
      for (let at = 0; at < counts.length; at += 2) {
        const word = kb.words[counts[at]];
        where.get(word).push([place, counts[at + 1]]);
        if (word[0] !== "#") size += counts[at + 1];
      }
      return size;
    });
    const mean = sizes.length ? sizes.reduce((sum, size) => sum + size) / sizes.length : 1;
    const vocabulary = kb.words.filter(isAlpha).sort();
    const places = (word) => where.get(word) || [];
    const rarity = (word) => {
      const count = places(word).length;
      return Math.log(1 + (kb.records.length - count + 0.5) / (count + 0.5));
    };
    const lettersApart = (one, other) => {
      let before = [], row = Array.from({ length: other.length + 1 }, (_, at) => at);
      for (let at = 1; at <= one.length; at++) {
        const last = row;
        row = [at];
        for (let place = 1; place <= other.length; place++) {
          const is = one[at - 1] === other[place - 1];
          let least = Math.min(last[place] + 1, row[place - 1] + 1, last[place - 1] + (is ? 0 : 1));
          if (at > 1 && place > 1 && one[at - 1] === other[place - 2] && one[at - 2] === other[place - 1])
            least = Math.min(least, before[place - 2] + 1);
          row.push(least);
        }
        before = last;
      }
      return row[other.length];
    };
    const meant = (stem, synonyms) => {
      if ([stem, ...synonyms].some((word) => places(word).length)) return [];
      if (!isAlpha(stem) || stem.length < kb.spelt) return [];
      const most = stem.length < 2 * kb.spelt ? 1 : 2;
      const near = [[], []];
      for (const word of vocabulary)
        if (Math.abs(word.length - stem.length) <= most && word.length >= kb.spelt) {
          const apart = lettersApart(stem, word);
          if (apart <= most) near[apart - 1].push(word);
        }
      const least = near.findIndex((words) => words.length);
      return least < 0 ? [] : near[least].map((word) => [word, kb.misspelt[least]]);
    };

    return (query) => {
      const scores = new Map(), shares = new Map();
      let total = 0;
      for (const stem of stemsOf(query)) {
        const synonyms = kb.synonyms[stem] || [];
        const alike = [[stem, 1], ...synonyms.map((word) => [word, kb.synonym]), ...meant(stem, synonyms)];
        const weight = rarity(stem), best = new Map();
        total += alike.some(([word]) => places(word).length) ? weight : kb.unknown * weight;
        for (const [word, factor] of alike)
          for (const [place, count] of places(word)) {
            const length = 1 - kb.length + kb.length * sizes[place] / mean;
            const gain = count * (kb.saturation + 1) / (count + kb.saturation * length);
            const score = factor * rarity(word) * gain;
            if (score > (best.get(place) || [0])[0]) best.set(place, [score, factor]);
          }
        for (const [place, [score, factor]] of best) {
          scores.set(place, (scores.get(place) || 0) + score);
          shares.set(place, (shares.get(place) || 0) + factor * weight);
        }
      }
      const question = nameOf(query), asked = question.match(new RegExp(`^${kb.whatIs}`));
      const weights = new RegExp(`^${kb.howTo}`).test(question) ? { ...kb.weights, ...kb.howToWeights } : kb.weights;
      const name = asked ? asked[1] : question, [kind, ...rest] = name.split(" "), called = rest.join(" ");
      const found = [...scores].map(([place, sum]) => {
        const [location, its, names] = kb.records[place], share = shares.get(place) / total;
        const raw = sum * (0.5 + share / 2), score = raw * Math.sqrt(share) * (weights[its] || 1);
        const other = !names.includes(name) && !(its === kind && names.includes(called));
        return { location, share, place, raw, score, other, another: other || its !== kind };
      });
      found.sort((a, b) => b.raw - a.raw || a.place - b.place);
      return found.sort((a, b) => a.other - b.other || a.another - b.another || b.score - a.score);
    };
  };

  const nameOf = (text) => (text.toLowerCase().match(/[\p{L}\p{N}]+/gu) || []).join(" ");

  /* Pages in the order in which they are shown: those of this title; records as `kbtool search` has
     them, as long as they have half of what was asked; pages with all words; the other records; the
     rest. What programs wrote comes last among the pages. */
  const ordered = (query, found, hasAll) => {
    const byPage = new Map(found.map((one) => [one.sections[0].doc.location, one]));
    const pageOf = new Map(records.map((sections) => [sections[0].doc.location.split("#")[0], sections]));
    const name = nameOf(query), pages = new Map();
    const add = (sections, section) => {
      const page = sections[0].doc.location;
      if (!pages.has(page)) pages.set(page, { sections, hits: [], ...byPage.get(page), first: [] });
      if (section && !pages.get(page).first.includes(section)) pages.get(page).first.push(section);
    };
    const later = ({ sections: [first] }) => LATER.test(first.doc.location);
    const rest = [...found.filter((one) => !later(one)), ...found.filter(later)];
    const titled = ([{ title, doc }]) => {
      const run = doc.location.match(RUN); // its title tells what ran; its name is in its address
      return nameOf(run ? run[1] : title).replace(/^sweep /, "") === name;
    };
    for (const { sections } of rest) if (titled(sections)) add(sections);
    const hits = /"/.test(query) ? [] : ranked(query).filter(({ location }) => pageOf.has(location.split("#")[0]));
    const few = hits.findIndex(({ share, other }) => other && share < ENOUGH);
    const addRecord = ({ location }) => {
      const sections = pageOf.get(location.split("#")[0]);
      add(sections, location.includes("#") && sections.find(({ doc }) => doc.location === location));
    };
    hits.slice(0, few < 0 ? hits.length : few).forEach(addRecord);
    const are = new Set(hits.map(({ location }) => location.split("#")[0]));
    const prose = rest.filter(({ sections: [first] }) => !are.has(first.doc.location));
    if (hasAll) for (const { sections } of prose) add(sections);
    if (few >= 0) hits.slice(few).forEach(addRecord);
    for (const { sections } of rest) add(sections);
    return [...pages.values()];
  };

  const search = (query) => {
    const { needed, besides } = asked(query);
    if (!needed.length) return { items: [] };
    let most = 1, found = [];
    for (const sections of records) {
      const has = needed.map(() => false);
      const hits = [];
      for (const section of sections) {
        const weights = needed.map((word) => weigh(section, word));
        weights.forEach((weight, nth) => { has[nth] ||= weight > 0; });
        const held = weights.filter(Boolean).length;
        if (!held) continue;
        for (const word of besides) weights.push(weigh(section, word));
        const sum = weights.reduce((total, weight) => total + weight);
        // Words that stand together are more likely what is meant.
        hits.push({ section, score: sum * held / needed.length });
      }
      const count = has.filter(Boolean).length;
      if (count < most) continue;
      if (count > most) {
        most = count;
        found = [];
      }
      hits.sort(better);
      found.push({ sections, hits, has });
    }
    found.sort((a, b) => better(a.hits[0], b.hits[0]));
    const items = ordered(query, found, most === needed.length).map(({ sections, first, hits, has }) => {
      const terms = has ? Object.fromEntries(needed.map(({ word }, nth) => [word, has[nth]])) : {};
      const others = hits.filter(({ section }) => !first.includes(section));
      const best = [...first.map((section) => ({ section, score: 0 })), ...others].slice(0, SECTIONS);
      const group = best.map(({ section, score }) => item(section, score, terms, [...needed, ...besides]));
      if (!best.some(({ section }) => section === sections[0])) group.push(item(sections[0], 0, {}, []));
      return group;
    });
    return { items };
  };

  addEventListener("message", ({ data: message }) => {
    if (message.type === SETUP) {
      setup(message.data.docs);
      postMessage({ type: READY });
    } else if (message.type === QUERY) {
      postMessage({ type: RESULT, data: { ...search(message.data), rest: restOf(message.data) } });
    }
  });
})();
