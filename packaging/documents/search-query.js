// Queries as readers type them. The search excludes a word after a dash, so `--check` would find nothing. An option is
// one complete word, so it must not find "checkout". Words such as "how" or "host" match most pages.
{
  const QUERY = 2;
  const COMMON = new Set(("a an and are as at be by can do does for from get happen happens have host hosts how i if in into is it its me my need of "
    + "on or our per puller should so than that the their them then they this to us want was we what where which who why will "
    + "with you your").split(" "));
  const plain = (query) => {
    const words = query.split(/\s+/).map((word) => word.replace(/^-+(?=\w)/, "+").replace(/^[^\p{L}\p{N}"+]+/u, "")).filter(Boolean);
    const rare = words.filter((word) => !COMMON.has(word.toLowerCase().replace(/[?.,!]+$/, "")));
    return (rare.length ? rare : words).join(" ");
  };
  const Original = window.Worker;
  window.Worker = class extends Original {
    postMessage(message, ...rest) {
      super.postMessage(message.type === QUERY ? { ...message, data: plain(message.data) } : message, ...rest);
    }
  };
}
