"""Sprig's functions, version 3, by module. A module is imported when a template uses a name of it."""

from typing import Final

_GROUPS: Final = {
    "cases": "camelcase kebabcase snakecase swapcase title untitle",
    "certificates": "buildCustomCert genCA genCAWithKey genPrivateKey genSelfSignedCert genSelfSignedCertWithKey "
    "genSignedCert genSignedCertWithKey",
    "containers": "append chunk compact concat dict dig first get has hasKey initial keys last list merge "
    "mergeOverwrite mustAppend mustChunk mustCompact mustFirst mustHas mustInitial mustLast mustMerge "
    "mustMergeOverwrite mustPrepend mustPush mustRest mustReverse mustSlice mustUniq mustWithout omit "
    "pick pluck prepend push rest reverse set slice tuple uniq unset values without "
    "all any coalesce deepCopy deepEqual default empty fail kindIs kindOf mustDeepCopy ternary typeIs "
    "typeIsLike typeOf",
    "dates": "ago date dateInZone dateModify date_in_zone date_modify duration durationRound htmlDate "
    "htmlDateInZone mustDateModify mustToDate must_date_modify now toDate unixEpoch",
    "encoding": "adler32sum b32dec b32enc b64dec b64enc fromJson mustFromJson mustToJson mustToPrettyJson "
    "mustToRawJson sha1sum sha256sum sha512sum toJson toPrettyJson toRawJson",
    "numbers": "add add1 add1f addf atoi biggest ceil div divf float64 floor int int64 max maxf min minf mod mul "
    "mulf round seq sub subf toDecimal until untilStep",
    "passwords": "bcrypt decryptAES derivePassword encryptAES htpasswd randAlpha randAlphaNum randAscii randBytes "
    "randInt randNumeric shuffle uuidv4",
    "regexes": "mustRegexFind mustRegexFindAll mustRegexMatch mustRegexReplaceAll mustRegexReplaceAllLiteral "
    "mustRegexSplit regexFind regexFindAll regexMatch regexQuoteMeta regexReplaceAll "
    "regexReplaceAllLiteral regexSplit",
    "semvers": "semver semverCompare",
    "text": "abbrev abbrevboth cat contains env expandenv getHostByName hasPrefix hasSuffix hello indent initials "
    "join lower nindent nospace plural quote repeat replace sortAlpha split splitList splitn squote "
    "substr toString toStrings trim trimAll trimPrefix trimSuffix trimall trunc upper wrap wrapWith",
    "urls": "base clean dir ext isAbs osBase osClean osDir osExt osIsAbs urlJoin urlParse",
}

GROUP_OF: Final = {name: group for group, names in _GROUPS.items() for name in names.split()}
"""The module of each function, by the function's name, which is also its key in the module's ``FUNCTIONS``."""
